"""What somebody was asked about, told from what stands there when he says yes. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

import orjson

Entry = tuple[str, str, int | None]
"""Kind, name and run; the run None where it makes no difference."""


def digest(entries: Iterable[Entry]) -> str:
    """The same for the same entries, in whatever order."""
    said = sorted(orjson.dumps(entry) for entry in entries)
    return sha256(b"\n".join(said)).hexdigest()
