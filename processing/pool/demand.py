"""How many due rows the main process wants, and which it has in hand. Pure.

Rows are wanted when fewer wait than half a mark. The mark follows what the workers get done in a
few seconds: an instance must not sit on rows that another one could run, and never run dry.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from feedback.contract.record import Record, claim_of, is_due, record_size
from processing.ipc.frames import WantRows

FIRST = 100
"""The mark before anything is known."""
HOLD = 2.0
"""Seconds of work that the mark is for."""
GROWTH = 4.0
"""The mark grows by so much at once, at most."""
REPLACE_AFTER = 0.5
"""Seconds that an open want keeps its limits although they have changed."""


class Demand:
    """The main process's side of the waiting queue."""

    def __init__(self, most: int, most_bytes: int, workers: int) -> None:
        """`most` rows in hand, 0 for none, of `most_bytes` together."""
        self._most = most
        self._most_bytes = most_bytes
        self._least = min(2 * workers, most)
        self._mark = min(max(FIRST, self._least), most)
        self.hand: dict[tuple[str, int], int] = {}
        """Due records in hand: (id, order) -> bytes."""
        self._bytes = 0
        self._mean = 0.0
        self._order = 0
        self._open: int | None = None
        """The order that the maintenance process has to fill."""
        self._opened = 0.0
        self._limits: dict[str, int] = {}
        self._paused: list[str] = []
        self._filled = 0.0
        self._done = 0
        """Records that went since `_filled`."""

    def __len__(self) -> int:
        return len(self.hand)

    @property
    def order(self) -> int:
        """The order that was given last."""
        return self._order

    @property
    def pairs(self) -> list[tuple[str, int]]:
        """(id, order) of all due records in hand."""
        return list(self.hand)

    def next(
        self, running: int, limits: Mapping[str, int], paused: Collection[str], now: float
    ) -> WantRows | None:
        """The frame that asks the maintenance process for rows, where it is time.

        `running` of the rows in hand run; of a type at most `limits` may come, of those that are
        paused none.
        """
        if not self._most or (self._open is not None and not self._outdated(limits, paused, now)):
            return None
        waiting = len(self.hand) - running
        if 2 * waiting >= self._mark:
            return None
        self._adapt(now)
        most = min(self._mark - waiting, self._most - len(self.hand))
        if self._mean:
            by_size = int((self._most_bytes - self._bytes) / self._mean)
            most = min(most, max(by_size, 0 if self.hand else 1))
        if most < 1:
            return None
        self._order += 1
        self._open, self._opened = self._order, now
        self._limits, self._paused = dict(limits), sorted(paused)
        # What the next ones weigh nobody knows before they come.
        room = max(1, self._most_bytes - self._bytes)
        return WantRows(self._order, most, self._limits, self._paused, room)

    def _outdated(self, limits: Mapping[str, int], paused: Collection[str], now: float) -> bool:
        if not (limits or paused or self._limits or self._paused):
            return False
        changed = self._limits != limits or self._paused != sorted(paused)
        return changed and now - self._opened >= REPLACE_AFTER

    def close(self) -> WantRows | None:
        """The frame that says that none are wanted, where some still have to be brought."""
        if self._open is None:
            return None
        self._order += 1
        self._open = None
        return WantRows(self._order, 0, {}, [])

    def forget(self) -> None:
        """A new maintenance process knows nothing of what was wanted of the old one."""
        self._open = None

    def came(self, order: int, records: Sequence[Record], now: float) -> int:
        """The maintenance process brought rows; bytes of them."""
        if order == self._open:
            self._open = None
        before = self._bytes
        for record in records:
            size = record_size(record)
            self.hand[claim_of(record)] = size
            self._bytes += size
            # Growth counts at once: the next rows must not be as many of a size that is the past.
            self._mean = max(size, self._mean + 0.02 * (size - self._mean))
        self._filled, self._done = now, 0
        return self._bytes - before

    def went(self, records: Iterable[Record]) -> None:
        """Records are no longer in hand."""
        for record in records:
            if is_due(record):
                self._bytes -= self.hand.pop(claim_of(record), 0)
                self._done += 1

    def _adapt(self, now: float) -> None:
        if not self._done:
            return
        goal = HOLD * self._done / max(now - self._filled, 0.001)
        goal = min(goal, GROWTH * self._mark, self._most)
        self._mark = max(int(goal), self._least, 1)
