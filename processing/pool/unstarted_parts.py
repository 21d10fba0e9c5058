"""Records that will not start here, in parts that the maintenance process answers for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from feedback.backend import Backend
from feedback.contract.record import Record, perhaps_done, record_size, size_of
from processing.ipc.frames import Park, PartAnswered, PartStands, Refuse, ToMaintenance

RECORDS_AT_ONCE: Final = 500
"""Records in one frame."""
BYTES_AT_ONCE: Final = 1024 * 1024
"""Their bytes; what is larger goes alone. They are written to the database together, also over a
slow line in less time than that may take."""


@dataclass(slots=True)
class _Part:
    """Records that were handed over together, to be refused or parked."""

    frame: Refuse | Park
    left: int = 0
    size: int = 0
    """Bytes of the records, counted until all are answered for."""
    stands: bool = False
    """It waits for the end of a dead worker's database session."""


class UnstartedParts(ABC):
    """What was handed over to be refused or parked, until it is answered for."""

    def __init__(self, on_answered: Callable[[list[Record]], None]) -> None:
        """`on_answered` gets the records of each part that was answered for."""
        self._on_answered = on_answered
        self.decoded: list[str] = []
        """Topics whose messages only user code can read."""
        self.pure_once: tuple[str, ...] = ()
        """Types that leave no row when they are done, and must not be run again by themselves."""
        self.comparable: dict[str, bool] = {}
        """Type of the app -> whether producers can make its fingerprint."""
        self._parts: dict[int, _Part] = {}
        """What it was given to refuse or park and has not answered for yet."""
        self._last_part = 0
        self.parked = 0
        """Records that wait in the journal because this instance stops."""

    @abstractmethod
    def send(self, frame: ToMaintenance) -> bool:
        """Sends a frame; False: no process is there to take it."""

    @property
    def refusing(self) -> int:
        """Records that it has been given to refuse or park and has not answered for yet."""
        return sum(part.left for part in self._parts.values()) if self._parts else 0

    @property
    def refusing_bytes(self) -> int:
        """The same in bytes."""
        return sum(part.size for part in self._parts.values()) if self._parts else 0

    @property
    def standing(self) -> int:
        """Those of the records that wait for the end of dead workers' database sessions."""
        return sum(p.left for p in self._parts.values() if p.stands) if self._parts else 0

    @property
    def unanswered(self) -> list[Record]:
        """Records of the parts that it has not answered for yet, or not wholly."""
        return [record for part in self._parts.values() for record in part.frame.records]

    def refuse(self, code: str, records: Sequence[Record]) -> None:
        """Has records that were not started answered `failed/<code>`.

        Those that nobody sends again become dead letters, which may have to wait for the database.
        """
        for some in _portions(records):
            self._give(Refuse(self._next_part(), code, list(records[some]), self.decoded))

    def park(self, code: str, records: Sequence[Record], *, limited: bool = False) -> None:
        """Has records that were not started wait in the journal for any instance.

        `limited`: for the limits of their types; else because this instance stops.
        """
        for some in _portions(records):
            self._park(code, list(records[some]), [], [], limited=limited)

    def park_suspects(
        self,
        code: str,
        suspects: Sequence[tuple[Record, tuple[int, int], Sequence[Backend]]],
    ) -> None:
        """The same for records whose worker died: (record, (its starts, crashes), backends).

        Those of other backends are in other parts: a part waits for all of its own to be gone.
        """
        groups: dict[tuple[Backend, ...], list[tuple[Record, tuple[int, int]]]] = {}
        for record, starts, backends in suspects:
            groups.setdefault(tuple(backends), []).append((record, starts))
        for found, group in groups.items():
            records, counts = [record for record, _ in group], [starts for _, starts in group]
            for some in _portions(records):
                self._park(code, records[some], counts[some], list(found), limited=False)

    def _park(
        self,
        code: str,
        records: list[Record],
        starts: list[tuple[int, int]],
        backends: list[Backend],
        *,
        limited: bool,
    ) -> None:
        self._give(
            Park(
                self._next_part(), code, records, self.decoded, starts, backends, limited,
                self.pure_once, self.comparable,
            )
        )  # fmt: skip

    def _next_part(self) -> int:
        self._last_part += 1
        return self._last_part

    def _give(self, frame: Refuse | Park) -> None:
        part = self._parts[frame.part] = _Part(frame)
        self._hand_over(part)

    def _hand_over(self, part: _Part, *, again: bool = False) -> None:
        """`again`: what was parked before may have been run elsewhere meanwhile."""
        records = part.frame.records
        part.left, part.stands = len(records), False
        part.size = size_of(records)
        told = [perhaps_done(record) for record in records] if again else records
        self.send(part.frame._replace(records=told))

    def _hand_over_again(self) -> None:
        """What a process before had not answered for: it is the same to answer it twice."""
        for part in self._parts.values():
            self._hand_over(part, again=True)

    def _forget(self) -> None:
        """Nobody will answer."""
        self._parts.clear()

    def _answered(self, told: PartAnswered) -> None:
        part = self._parts.get(told.part)
        if part is None:
            return  # the last of it had been answered for: nothing was left to say
        if isinstance(part.frame, Park) and not part.frame.limited:
            self.parked += told.parked
        part.left -= told.answered
        if part.left <= 0:
            del self._parts[told.part]
            self._on_answered(part.frame.records)

    def _stands(self, told: PartStands) -> None:
        if (part := self._parts.get(told.part)) is not None:
            part.stands = True


def _portions(records: Sequence[Record]) -> Iterator[slice]:
    """Which records go together."""
    start = size = 0
    for n, record in enumerate(records):
        size += (more := record_size(record))
        if n - start == RECORDS_AT_ONCE or (n > start and size > BYTES_AT_ONCE):
            yield slice(start, n)
            start, size = n, more
    if start < len(records):
        yield slice(start, len(records))
