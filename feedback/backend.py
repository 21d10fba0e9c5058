"""How a session of the database is named, to end it from elsewhere. Loads no driver."""

from __future__ import annotations

from typing import TypeAlias

Backend: TypeAlias = tuple[int, str]
"""A server process: pid and start time, which name it beyond doubt."""
