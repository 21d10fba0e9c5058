"""What becomes of a batch: which rows go, which back off, which wait behind those. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from feedback.backoff import Backoff

MOST_FAILURES: Final = 8
"""Refusals in a row after which a row is a dead letter of the outbox; with these pauses, within
four minutes."""
PAUSES: Final = Backoff(2.0, 60.0)
NOT_CONFIRMED: Final = "not_confirmed"
"""Code of what is put off."""
ROW_LOCKED: Final = "row_locked"
"""Code of what is put off behind a row that is somebody else's for now."""
LOCK_PAUSE: Final = 2.0
MALFORMED: Final = "malformed"
"""Code of a row that somebody wrote otherwise than outboxes do."""


class ClaimedRow(NamedTuple):
    """A row that is locked here, as its shard is."""

    seq: int
    id: str
    type: str
    key: bytes | None
    payload: bytes
    headers: Sequence[tuple[str, bytes]]
    """Without id and type."""
    created_at: datetime
    read_at: datetime
    """When it was claimed; both by the database's clock."""
    failures: int
    too_late: bool = False
    """It was sent so long ago that its consumers may have forgotten it, and would run it again."""
    left_out: int = 0
    """Bytes that it has at least, where it is too large to be read: payload, headers and type are
    empty, and a key that is itself too large is None."""
    behind: bool = False
    """Another transaction has locked a row of its lane ahead of it."""
    unreadable: str | None = None
    """Why it is no request that could be sent."""

    @property
    def lane(self) -> bytes:
        """The message's key. Rows of one lane go one after the other."""
        return self.id.encode() if self.key is None else self.key

    @property
    def size(self) -> int:
        """Bytes of its content; the least that they are, where some were not read."""
        headers = sum(len(name) + len(value) for name, value in self.headers)
        read = len(self.payload) + len(self.type) + len(self.lane) + headers
        return len(self.id.encode()) + max(read, self.left_out)


class RowRefusal(NamedTuple):
    """Why this row can't be sent, whatever becomes of others."""

    code: str
    error: str


_BEHIND: Final = RowRefusal(ROW_LOCKED, "another transaction has locked a row of its key before it")


class BackingOff(NamedTuple):
    """A row that is tried again, or, without seconds, no more."""

    seq: int
    seconds: float | None
    refusal: RowRefusal


class PutOff(NamedTuple):
    """A row that goes again after so many seconds, however often: its partition takes nothing."""

    seq: int
    seconds: float
    why: RowRefusal


class BatchMarks(NamedTuple):
    """What to write about a batch."""

    sent: list[int]
    refused: list[BackingOff]
    too_late: Sequence[int] = ()
    """Not sent again by themselves."""
    in_doubt: Sequence[int] = ()
    """They go again, and may be with a broker already."""
    put_off: Sequence[PutOff] = ()


class Batch:
    """Rows by their order. A row that was not sent holds back those of its lane behind it.

    Not so one that is a dead letter now: refused for the last time, or too late to be sent again.
    `check` tells before anything is sent what no broker would take, so that nothing of its lane
    overtakes it, and `waits` what is not to be sent now.
    """

    def __init__(
        self,
        rows: Sequence[ClaimedRow],
        check: Callable[[ClaimedRow], RowRefusal | None],
        waits: Callable[[ClaimedRow], bool] = lambda _: False,
    ) -> None:
        self._rows = rows
        self._refusals: dict[int, RowRefusal] = {}
        self._confirmed: set[int] = set()
        self._unsent: set[int] = set()
        self._put_off: dict[int, PutOff] = {}
        self.to_send: list[ClaimedRow] = []
        self.held: list[ClaimedRow] = []
        """What waits, the first of each lane."""
        held: set[bytes] = set()
        for row in rows:
            if row.lane in held or row.too_late:
                continue
            if row.behind:
                self.put_off(row.seq, LOCK_PAUSE, _BEHIND)
                held.add(row.lane)
                continue
            refusal = _unreadable(row) or check(row)
            if refusal is None and waits(row):
                self.held.append(row)
                held.add(row.lane)
                continue
            if refusal is None:
                self.to_send.append(row)
                continue
            self._refusals[row.seq] = refusal
            if not _is_last(row):
                held.add(row.lane)

    @property
    def any_confirmed(self) -> bool:
        """Whether a broker has any of them."""
        return bool(self._confirmed)

    def confirmed(self, seq: int) -> None:
        """A broker has it."""
        self._confirmed.add(seq)

    def unsent(self, seq: int) -> None:
        """No broker has it. A row of which nothing is said may or may not be there."""
        self._unsent.add(seq)

    def refused(self, seq: int, refusal: RowRefusal) -> None:
        """The brokers will not have it, and so none has."""
        self._refusals[seq] = refusal

    def put_off(self, seq: int, seconds: float, why: RowRefusal) -> None:
        """It is not to be tried again before so many seconds, nor what is behind it."""
        self._put_off[seq] = PutOff(seq, seconds, why)

    def marks(self) -> BatchMarks:
        """What is known. Rows that it does not name stay as they are and are sent again."""
        too_late: list[int] = []
        put_off: list[PutOff] = []
        marks = BatchMarks([], [])
        held: set[bytes] = set()
        unclear = {row.seq for row in self.to_send} - self._refusals.keys() - self._unsent
        for row in self._rows:
            if row.lane in held:
                continue  # confirmed or not: it goes again, behind what it must not overtake
            refusal = self._refusals.get(row.seq)
            if row.too_late:
                too_late.append(row.seq)
            elif row.seq in self._confirmed:
                marks.sent.append(row.seq)
            elif refusal is None:
                held.add(row.lane)
                if row.seq in self._put_off:
                    put_off.append(self._put_off[row.seq])
            elif _is_last(row):
                marks.refused.append(BackingOff(row.seq, None, refusal))
            else:
                pause = PAUSES.after(row.failures + 1)
                marks.refused.append(BackingOff(row.seq, pause, refusal))
                held.add(row.lane)
        in_doubt = sorted(unclear.difference(marks.sent))
        return marks._replace(
            too_late=tuple(too_late), in_doubt=tuple(in_doubt), put_off=tuple(put_off)
        )


def _unreadable(row: ClaimedRow) -> RowRefusal | None:
    return None if row.unreadable is None else RowRefusal(MALFORMED, row.unreadable)


def _is_last(row: ClaimedRow) -> bool:
    """Whether one refusal more makes it a dead letter, which holds nothing back."""
    return row.failures + 1 >= MOST_FAILURES
