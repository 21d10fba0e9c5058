"""Records that one worker runs together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from feedback.contract.record import Record, kind_of
from processing.ipc.frames import Suspect

CHUNK_REQUESTS: Final = 500
CHUNK_BYTES: Final = 1024 * 1024


class Turn(NamedTuple):
    """The place in the order of all records that were ever sent: chunk, index in it."""

    chunk: int
    position: int


class Held(NamedTuple):
    """A record that waits for its turn, and how it has to run."""

    record: Record
    suspect: Suspect | None = None
    """Why it has to be looked up first; then it goes alone."""
    alone: bool = False
    """Whatever its kind: the connection broke under a chunk that it was in."""
    first_sent: Turn | None = None
    """Where it was when it was first sent to a worker; None for one that never was."""

    @property
    def apart(self) -> bool:
        """It goes alone for what has happened to it, not for its kind."""
        return self.suspect is not None or self.alone


class Chunk:
    """Records in flight to one worker."""

    __slots__ = (
        "alone", "blocked", "due", "first_sent", "gone", "limited", "number", "records", "seconds",
        "suspect", "worker",
    )  # fmt: skip

    def __init__(self, number: int, worker: int) -> None:
        self.number = number
        self.worker = worker
        self.records: list[Record] = []
        self.suspect: Suspect | None = None
        """Of its one record."""
        self.blocked: dict[int, None] = {}
        """Lanes whose held records wait until this chunk is done."""
        self.alone = False
        """Its one record goes alone: nothing may wait behind it."""
        self.gone: set[int] = set()
        """Indices of records that are no longer this chunk's: done, or given back."""
        self.limited: Counter[str] = Counter()
        """How many of its records are of which limited type."""
        self.due = 0
        """How many of its records come from the waiting queue."""
        self.seconds = 0.0
        """What it is expected to take."""
        self.first_sent: dict[int, Turn] = {}
        """Index -> where that record was first sent, where this is not the first time."""

    def remaining(self) -> Iterable[tuple[int, Record]]:
        """The records that are still this chunk's, with their indices."""
        gone = self.gone
        return ((i, r) for i, r in enumerate(self.records) if i not in gone)

    def add(self, held: Held) -> None:
        """Adds a record that has waited."""
        if held.first_sent is not None:
            self.first_sent[len(self.records)] = held.first_sent
        self.records.append(held.record)

    def held(self, index: int, suspect: Suspect | None = None, *, alone: bool = False) -> Held:
        """A record of this chunk as it waits again; what was suspected of it stays."""
        first_sent = self.first_sent.get(index) or Turn(self.number, index)
        return Held(self.records[index], suspect or self.suspect, alone, first_sent)


def done_by_kind(
    records: Iterable[Record], times: Mapping[str, tuple[int, float]]
) -> Iterable[tuple[str, int, float]]:
    """(kind, requests, seconds) of records that ended; `times` is what their handlers took."""
    counts = Counter(map(kind_of, records))
    for kind in counts.keys() | times.keys():
        ran, seconds = times.get(kind, (0, 0.0))
        yield kind, max(counts[kind], ran), seconds
