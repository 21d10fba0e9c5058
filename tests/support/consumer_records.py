"""Records for tests of the main process."""

from __future__ import annotations

from collections.abc import Iterable

from consumer.intake.assignment import Run
from consumer.intake.events import Place
from feedback.contract.record import Record


def records(
    place: Place, offsets: Iterable[int], value: bytes = b"{}", *, timestamp: int = 0
) -> list[Record]:
    return [(*place, offset, timestamp, None, value, [], "a.b", None) for offset in offsets]


def run_of(place: Place, offsets: Iterable[int], value: bytes = b"{}") -> Run:
    return Run(place, records(place, offsets, value))
