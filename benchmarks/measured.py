"""What one run of one side has shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Measured:
    """One run."""

    rate: float
    """Requests a second, or whatever unit is counted."""
    cpu: Mapping[str, float]
    """Part -> microseconds a request; empty where that could not be told."""


class Span(NamedTuple):
    """From when to when, by the monotonic clock."""

    begin: float
    end: float
