"""How many requests of a type may be in flight in this instance at once. Pure.

From the handlers' `max_at_once`, and from the limits that operators set while it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from processing.ipc.frames import LimitsFound, TypeBounds
from processing.pool.worker_time import Costs

NO_BOUNDS: Final[TypeBounds] = (None, None, None, None)


class TypeLimits:
    """What the app and the operators say, type by type."""

    def __init__(self) -> None:
        self.workers: int | None = None
        """Worker processes of this instance, where operators have set them."""
        self.paused: frozenset[str] = frozenset()
        self.most: dict[str, int] = {}
        """Of each limited type, how many may be in flight; 0 of a paused one."""
        self.elsewhere: frozenset[str] = frozenset()
        """Types of which none will start here for now: they are paused, or others run them."""
        self._by_app: dict[str, int] = {}
        self._types: Mapping[str, TypeBounds] = {}
        self.number = 0
        """Of the last that operators or other instances have changed."""

    def app(self, at_once: Mapping[str, int]) -> bool:
        """The handlers' own `max_at_once`; True where something changed."""
        self._by_app = dict(at_once)
        return self._settle()

    def limits(self, found: LimitsFound) -> bool:
        """What operators have set; True where a cap changed."""
        self.number = found.number
        self.workers = found.workers
        self.paused = frozenset(found.paused)
        self._types = found.types
        return self._settle()

    def in_chunk(self, kind: str, workers: int) -> int:
        """How many may share a chunk, so that not all that may run queue up for one worker."""
        return max(1, -(-self.most[kind] // max(1, workers)))

    def at_once(self, in_use: Mapping[str, int]) -> dict[str, int]:
        """Type -> the most that may be in flight now, or still is, of what is shared out."""
        return {
            kind: max(now, in_use.get(kind, 0))
            for kind, (_, _, now, _) in self._types.items()
            if now is not None
        }

    def needs(self, present: Mapping[str, int], costs: Costs, workers: int) -> dict[str, int]:
        """Type -> how many of those present could be in flight here, of what is shared out."""
        needs = {
            kind: min(present.get(kind, 0), self.could_run(kind, costs, workers))
            for kind, (_, total, _, _) in self._types.items()
            if total is not None
        }
        return needs | dict.fromkeys(self.paused & needs.keys(), 0)

    def could_run(self, kind: str, costs: Costs, workers: int) -> int:
        """How many of a limited type could be in flight here, whatever others run of it."""
        instance, total, _, _ = self._types.get(kind, NO_BOUNDS)
        alone = costs.of(kind) is None
        most = workers * costs.at_once(kind) if alone else None
        bounds = (total, instance or self._by_app.get(kind), most)
        return min(n for n in bounds if n is not None)

    def _settle(self) -> bool:
        before = (self.most, self.elsewhere)
        most: dict[str, int] = {}
        elsewhere = set(self.paused)
        for kind in self._by_app.keys() | self._types.keys():
            instance, _, now, due = self._types.get(kind, NO_BOUNDS)
            bounds = [instance or self._by_app.get(kind), now]
            if found := [n for n in bounds if n is not None]:
                most[kind] = min(found)
            if due == 0:
                elsewhere.add(kind)
        most.update(dict.fromkeys(self.paused, 0))
        self.most, self.elsewhere = most, frozenset(elsewhere)
        return (self.most, self.elsewhere) != before
