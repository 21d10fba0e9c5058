"""What the pool says of the waiting queue: how many rows it wants, and may keep waiting. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from feedback.contract.record import Record, is_due, kind_of
from processing.ipc.frames import Recall
from processing.pool.actions import Action, Send, Tell
from processing.pool.calls import SeatedCalls
from processing.pool.demand import HOLD, Demand
from processing.pool.doubts import WantedDoubts
from processing.pool.lanes import Lanes
from processing.pool.leases import Leases
from processing.pool.limits import TypeLimits
from processing.pool.standstill import Standstill
from processing.pool.worker_time import OVERHEAD, Costs
from processing.pool.workers import Workers
from processing.settings import PoolSettings

WAITING_PER_CAP: Final = 10
FEW: Final = 100
"""Of a limited type ten times its cap may wait here, or so many."""
ROWS_PER_PLACE: Final = 3
"""Of a limited type so many claimed rows may be in hand for each that may run: it and the next."""
BACK_EVERY: Final = 1.0
"""Seconds between two looks at what is to be given back while nothing starts."""


class WaitingQueue:
    """The pool's side of it."""

    def __init__(
        self,
        settings: PoolSettings,
        lanes: Lanes,
        caps: TypeLimits,
        crew: Workers,
        calls: SeatedCalls,
        costs: Costs,
    ) -> None:
        self._settings = settings
        self._lanes = lanes
        self._caps = caps
        self._crew = crew
        self._costs = costs
        self.wants = Demand(settings.max_due, settings.max_due_bytes, settings.workers)
        self.doubts = WantedDoubts(settings.workers)
        self.standstill = Standstill(crew, calls)
        self._back_at = float("-inf")
        """When to look next whether something is to be given back."""
        self._leases = Leases(settings, self.wants, crew, lanes)
        self.claiming = True
        """Rows are wanted."""

    def stop_claims(self) -> list[Action]:
        """From now on no rows are wanted; what workers have not started of them comes back."""
        self.claiming = False
        holders = (w for w in self._crew.all.values() if any(chunk.due for chunk in w.chunks))
        return [Send(worker.number, Recall()) for worker in holders]

    def ask(self, now: float, *, claiming: bool) -> list[Action]:
        """What to tell the maintenance process."""
        actions = self._leases.due(now)
        if self.standstill.look(now) or not claiming:
            frame = self.wants.close()
        elif not self._crew.serving:
            return actions
        else:
            limits, elsewhere = self._limits(), self._caps.elsewhere
            frame = self.wants.next(self._running, limits, elsewhere, now, idle=self._crew.idle)
            if (doubts := self.doubts.want(now, elsewhere)) is not None:
                actions.append(Tell(doubts))
        if frame is not None:
            actions.append(Tell(frame))
        return actions

    def may_hoard(self, now: float) -> bool:
        """Whether there may be something for `hoarded`."""
        if not self.claiming:
            return len(self.wants) > self._running
        if self.standstill.holds:
            return now >= self._back_at and len(self.wants) > self._running
        return self.wants.may_hoard(now)

    def hoarded(self, now: float) -> list[Record]:
        """Takes out due rows that would wait here for long, of each type the last ones.

        Once none are claimed any more, all that no worker has: they are others' to run.
        """
        if not self.may_hoard(now):
            return []
        if not self.claiming:
            return self._lanes.take_out(is_due)
        most: int | None = 0
        few: dict[str, int] = {}
        if not self.standstill.holds:
            few = self._hoards_of_limited()
            most = self.wants.hoards(self._running, now)
        else:
            self._back_at = now + BACK_EVERY
            self.wants.none_starts()
        if most is None:
            if not few:
                return []
            most = len(self.wants)
        seen: Counter[str] = Counter()

        def goes(record: Record) -> bool:
            kind = kind_of(record)
            seen[kind] += is_due(record)
            return is_due(record) and seen[kind] > min(most, few.get(kind, most))

        gone = self._lanes.take_out(goes)
        if gone and self.standstill.holds:
            self.standstill.gave_back()
        return gone

    def _hoards_of_limited(self) -> dict[str, int]:
        """How many of a limited type may go on waiting, where more than twice as many are in hand.

        It was limited, or became slow, after they had come.
        """
        kinds = self._caps.most.keys() - self._caps.elsewhere
        rows = {kind: self._rows(kind) for kind in kinds if self.wants.of(kind)}
        return {kind: n for kind, n in rows.items() if self.wants.of(kind) > 2 * n}

    @property
    def _running(self) -> int:
        """How many of the rows in hand workers have, or wait for what dead ones left at work.

        Of neither does it depend on room here when they go: others are wanted beside them.
        """
        return sum(chunk.due for chunk in self._crew.chunks) + self._lanes.kept_back.now.due

    def new_maintenance(self, *, stopping: bool) -> list[Action]:
        """There is another maintenance process: it is told of every claimed row in hand.

        What the one before it had claimed and not handed over, or was to give back, is nobody's. At
        a stop that is left to the leases: some of it may have been begun.
        """
        self.wants.forget()
        return self._leases.all(alone=not stopping)

    def leases_renewed(self) -> None:
        """The maintenance process has renewed all leases that it was told of."""
        self._leases.renewed()

    def may_wait(self, kind: str, waiting: Mapping[str, int]) -> int:
        """How many of a limited type may wait here; all such types together fill a quarter."""
        if kind in self._caps.elsewhere:
            return 0
        quarter = self._settings.max_in_hand // 4 // max(1, len(waiting))
        most = self._caps.most[kind]
        return max(most, min(max(WAITING_PER_CAP * most, FEW), quarter))

    def _limits(self) -> dict[str, int]:
        """Of limited types, how many more rows may come: no more than may wait, or go soon."""
        if not self._caps.most:
            return {}
        waiting = self._lanes.waiting
        limits: dict[str, int] = {}
        for kind in self._caps.most.keys() - self._caps.elsewhere:
            room = self.may_wait(kind, waiting) - waiting.get(kind, 0)
            limits[kind] = max(0, min(room, self._rows(kind) - self.wants.of(kind)))
        return limits

    def _rows(self, kind: str) -> int:
        """How many claimed rows of a limited type may be in hand, so that others may run the rest.

        As many as run in the time that the mark is for, as far as that is known.
        """
        at_once = self._caps.could_run(kind, self._costs, self._crew.wanted)
        soon = 0.0
        if (seconds := self._costs.measured(kind)) is not None:
            soon = HOLD * at_once / (seconds + OVERHEAD)
        return max(ROWS_PER_PLACE * at_once, int(soon))
