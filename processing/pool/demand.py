"""How many due rows the main process wants, and which it has in hand. Pure.

Rows are wanted when fewer wait than half a mark. The mark follows what the workers get done in a
few seconds: an instance must not sit on rows that another one could run, and never run dry.

Where what waits is slow, or may not start, it is not what others wait for: rows of the types of
which there are few are wanted besides, a few at a time. And what would wait here for long is given
back, as the mark was made for quicker ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from feedback.contract.record import Record, claim_of, is_due, kind_of, record_size
from processing.ipc.frames import WantRows

FIRST = 100
"""The mark before anything is known."""
HOLD = 2.0
"""Seconds of work that the mark is for."""
GROWTH = 4.0
"""The mark grows by so much at once, at most."""
MEASURED = 0.1
"""Seconds of work, at least, that say how much is done: ends of a moment come in heaps."""
REPLACE_AFTER = 0.5
"""Seconds that an open want keeps its limits although they have changed, as long as it can."""
STUCK_AFTER = HOLD / 2
"""Seconds in which half of the mark should have gone: after that other types are asked for."""
PATIENCE = 10.0
"""Seconds after which what waits is compared with what went meanwhile."""
MOST_CROWDS = 8
"""Where so many types wait in numbers others are wanted only while a worker has nothing to do."""


class Demand:
    """The main process's side of the waiting queue."""

    def __init__(self, most: int, most_bytes: int, workers: int) -> None:
        """`most` rows in hand, 0 for none, of `most_bytes` together."""
        self._most = most
        self._most_bytes = most_bytes
        self._least = min(2 * workers, most)
        self._few = max(1, self._least // 2)
        """Rows of other types that are wanted besides a crowd."""
        self._mark = min(max(FIRST, self._least), most)
        self.hand: dict[tuple[str, int], int] = {}
        """Due records in hand: (id, order) -> bytes."""
        self._kinds: Counter[str] = Counter()
        """Type -> its rows in hand."""
        self._bytes = 0
        self._mean = 0.0
        self._order = 0
        self._open: int | None = None
        """The order that the maintenance process has to fill."""
        self._opened = 0.0
        self._limits: dict[str, int] = {}
        self._paused: list[str] = []
        self._crowds: list[str] | None = None
        """Types of which the open want wants none as they wait in numbers; None: it wants all."""
        self._look_at = 0.0
        """When to look next whether other types are wanted besides."""
        self._since = 0.0
        """When the mark was set last, or rows came while none were in hand."""
        self._done = 0
        """Records that were done since then."""
        self._judge_at = 0.0
        """When to look next whether too many wait."""
        self._went = 0
        """Records that were done since it was looked, or since more of all types came."""

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

    def of(self, kind: str) -> int:
        """Rows of a type in hand."""
        return self._kinds[kind]

    def next(
        self,
        running: int,
        limits: Mapping[str, int],
        paused: Collection[str],
        now: float,
        *,
        idle: bool = False,
    ) -> WantRows | None:
        """The frame that asks the maintenance process for rows, where it is time.

        `running` of the rows in hand run; of a type at most `limits` may come, of those that are
        paused none. `idle`: a worker has nothing to do.
        """
        if not self._most:
            return None
        waiting = len(self.hand) - running
        if 2 * waiting >= self._mark:
            return self._besides(limits, paused, now, idle=idle)
        if self._stands(None, limits, paused, now):
            return None
        self._adapt(now)
        most = min(self._mark - waiting, self._most - len(self.hand))
        return self._want(most, limits, paused, None, now)

    def may_hoard(self, now: float) -> bool:
        """Whether it is time to look at what `hoards` says."""
        return now >= self._judge_at and bool(self.hand)

    def hoards(self, running: int, now: float) -> int | None:
        """How many of each type may go on waiting here, where more wait than will go soon.

        None: all may. `running` of the rows in hand run.
        """
        if not self.may_hoard(now):
            return None
        keep = max(2 * self._went, self._least)
        self._judge_at, self._went = now + PATIENCE, 0
        if len(self.hand) - running <= 2 * keep:
            return None
        self._mark = min(self._mark, keep)  # or they would be wanted again
        return max(self._few, keep // len(self._kinds))

    def none_starts(self) -> None:
        """What waits is given back, as none of it starts here: few are wanted once some does."""
        self._mark = self._least

    def _besides(
        self, limits: Mapping[str, int], paused: Collection[str], now: float, *, idle: bool
    ) -> WantRows | None:
        """What waits does not go: asks for what is of other types."""
        if now < self._look_at:
            return None
        self._look_at = now + REPLACE_AFTER
        # Of a limited type that may have no more here a few are a crowd.
        full = {kind for kind, more in limits.items() if not more}
        crowds = sorted(k for k, n in self._kinds.items() if n >= self._few or k in full)
        if not crowds or (len(crowds) >= MOST_CROWDS and not idle):
            return None
        if self._stands(crowds, limits, paused, now):
            return None
        others = len(self.hand) - sum(self._kinds[kind] for kind in crowds)
        self._adapt(now)
        most = min(self._few - others, self._most + self._least - len(self.hand))
        return self._want(most, limits, paused, crowds, now)

    def _want(
        self,
        most: int,
        limits: Mapping[str, int],
        paused: Collection[str],
        crowds: list[str] | None,
        now: float,
    ) -> WantRows | None:
        if self._mean:
            by_size = int((self._most_bytes - self._bytes) / self._mean)
            most = min(most, max(by_size, 0 if self.hand and crowds is None else 1))
        if most < 1:
            return None
        self._order += 1
        self._open, self._opened = self._order, now
        self._limits, self._paused, self._crowds = dict(limits), sorted(paused), crowds
        # What the next ones weigh nobody knows before they come.
        room = max(1, self._most_bytes - self._bytes)
        unwanted = sorted({*paused, *(crowds or ())})
        return WantRows(self._order, most, self._limits, unwanted, room)

    def _stands(
        self,
        crowds: list[str] | None,
        limits: Mapping[str, int],
        paused: Collection[str],
        now: float,
    ) -> bool:
        """Whether what is wanted is open already."""
        if self._open is None or self._crowds != crowds:
            return False
        return not self._outdated(limits, paused, now)

    def _outdated(self, limits: Mapping[str, int], paused: Collection[str], now: float) -> bool:
        if not (limits or paused or self._limits or self._paused):
            return False
        if self._limits == limits and self._paused == sorted(paused):
            return False
        if now - self._opened >= REPLACE_AFTER:
            return True
        # Not so where one may come again of which all have gone.
        dry = (kind for kind, n in limits.items() if n and not self._kinds[kind])
        return any(self._limits.get(kind) == 0 for kind in dry)

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
        if not self.hand:
            # They may go before it is asked again; and how long none were due says nothing.
            self._mark = max(self._mark, self._goal(now))
            self._since, self._done = now, 0
        for record in records:
            size = record_size(record)
            self.hand[claim_of(record)] = size
            self._bytes += size
            self._kinds[kind_of(record)] += 1
            # Growth counts at once: the next rows must not be as many of a size that is the past.
            self._mean = max(size, self._mean + 0.02 * (size - self._mean))
        if self._crowds is None:
            self._judge_at, self._went = now + PATIENCE, 0
        self._look_at = now + STUCK_AFTER
        return self._bytes - before

    def went(self, records: Iterable[Record], *, done: bool = True) -> None:
        """Records are no longer in hand; `done`: and not given back."""
        for record in records:
            if is_due(record):
                self._done += done
                self._went += done
                if (size := self.hand.pop(claim_of(record), None)) is not None:
                    self._bytes -= size
                    kind = kind_of(record)
                    self._kinds[kind] -= 1
                    if not self._kinds[kind]:
                        del self._kinds[kind]

    def _adapt(self, now: float) -> None:
        if self._done and now - self._since >= MEASURED:
            self._mark = max(self._goal(now), self._least, 1)
            self._since, self._done = now, 0

    def _goal(self, now: float) -> int:
        """The mark for what was done since the last one was set."""
        goal = HOLD * self._done / max(now - self._since, 0.001)
        return int(min(goal, GROWTH * self._mark, self._most))
