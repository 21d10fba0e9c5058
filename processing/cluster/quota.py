"""What this instance may take of limits that all instances share. Pure.

Every instance divides each total by the same rule (`fair_shares`), from what all say in their
registrations: how much they need, may have at once (`held`) and have reserved. They do not see a
change at the same moment, so it is something else that keeps them within the total: a larger share
is used only

- after its own reservation of it was read back from Redis, together with
- registrations of all others that, with what they hold or have reserved, leave room for it.

Of two that reserve the same place, who does so last reads the other's, whatever came when.
A smaller share is used at once, and is no longer held when the main process has confirmed it and
what ran beyond it has ended.

Registrations that are gone without their instances, as after a FLUSHALL, come back within a second:
a share grows only when the group has been the same for `SETTLE`. So does the number of workers, and
what others know is forgotten only then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from processing.cluster.fair_shares import fair_shares
from processing.cluster.grants import Grants
from processing.cluster.limits import MOST_WORKERS, ClusterLimits

SETTLE = 2.5
"""Seconds before a larger share is used in a changed group; longer than two looks at it take."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A live instance, as its registration describes it."""

    id: str
    types: frozenset[str] = frozenset()
    """The request types that it knows; empty as long as it has not said."""
    held: Mapping[str, int] = field(default_factory=dict)
    """Type -> the most that it may have at once, or still has."""
    reserved: Mapping[str, int] = field(default_factory=dict)
    """Type -> what it has or wants of the total: nobody else may count on that."""
    needs: Mapping[str, int] = field(default_factory=dict)
    """Type -> how many it could run at once; a type that it does not name: any number."""
    stopping: bool = False
    """It takes nothing new."""
    workers: int | None = None
    """Worker processes that its main process keeps; None: it has not said."""
    group: str = ""
    """Its consumer group; empty: it has not said."""
    journal: str = field(default="", compare=False)
    """Which it uses; empty: it has not said. No matter of limits."""

    def takes_part(self, kind: str) -> bool:
        """Whether a total of this type is shared out to it."""
        return not self.types or kind in self.types

    def reserves(self, kind: str) -> int:
        """What others must leave to it."""
        return max(self.held.get(kind, 0), self.reserved.get(kind, 0))


def peer(facts: Mapping[str, Any]) -> Peer:
    """The instance behind a registration."""
    return Peer(
        str(facts["id"]),
        frozenset(facts.get("types") or ()),
        held=facts.get("at_once") or {},
        reserved=facts.get("reserved") or {},
        needs=facts.get("needs") or {},
        stopping=bool(facts.get("stopping")),
        workers=facts.get("workers_wanted"),
        group=str(facts.get("group") or ""),
        journal=str(facts.get("journal") or ""),
    )


class TypeQuota(NamedTuple):
    """Of one type, in this instance. None: not limited."""

    instance: int | None
    """As set for each instance; instead of the handler's `max_at_once`."""
    total: int | None = None
    """As set for all instances together."""
    now: int | None = None
    """Of the total, what may be used now."""
    due: int | None = None
    """Of the total, what falls to this instance soon where it has work. 0: others run them."""


@dataclass(frozen=True, slots=True)
class InstanceQuota:
    """What holds in this instance."""

    workers: int | None = None
    """None: as configured."""
    types: Mapping[str, TypeQuota] = field(default_factory=dict)
    paused: tuple[str, ...] = ()

    @property
    def shares(self) -> dict[str, int]:
        """Type -> what may be used of its total now."""
        return {kind: share.now for kind, share in self.types.items() if share.now is not None}

    def plain(self) -> dict[str, Any]:
        """As it crosses the channel: type -> (instance, total, now, due)."""
        types = {kind: tuple(share) for kind, share in self.types.items()}
        return {"workers": self.workers, "types": types, "paused": list(self.paused)}


def workers_of(limits: ClusterLimits, own: str, ids: Collection[str]) -> int | None:
    """Worker processes of this instance; None: as configured.

    At most what the setting `workers` allows. At least one each, even where the total is less than
    there are instances: one that has partitions and no worker would keep their requests from
    everybody.
    """
    total = limits.workers_total
    if total is None:
        return limits.workers
    part = max(1, fair_shares(total, dict.fromkeys(ids, total), "workers")[own])
    return min(part, limits.workers or MOST_WORKERS)


class Quota:
    """This instance's shares over time."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._using: dict[str, int] = {}
        """Type -> what may be used of its total now."""
        self._workers: int | None = None
        """As they were found last; None: as configured, or not found yet."""
        self._groups: dict[str | None, tuple[object, float]] = {}
        """Type -> the total and who shares it, and since when that is so; None: who is there."""
        self._looked = False
        self._reserved: dict[str, int] = {}
        """Type -> what this instance has or wants of the total."""
        self._grants = Grants()
        self.known_elsewhere: frozenset[str] = frozenset()
        """Types that this instance does not know, and another one that takes work does."""

    def unsettle(self) -> None:
        """Registrations got lost, or nobody could look: others may be there that are not seen."""
        self._groups.clear()

    def look(
        self, limits: ClusterLimits, peers: Sequence[Peer], own: Peer, confirmed: int, now: float
    ) -> tuple[InstanceQuota, Peer]:
        """What holds from now on, and what this instance has to publish before it is told.

        `peers` as they were read, this instance among them where it is registered; `own` as the
        main process describes itself, which has `confirmed` what it was told up to this number.
        """
        self._grants.confirmed(confirmed)
        own = replace(own, held=self._grants.most(own.held))
        others = [p for p in peers if p.id != self._own]
        published = next((p for p in peers if p.id == self._own), Peer(self._own))
        types: dict[str, TypeQuota] = {}
        for kind, limit in limits.types.items():
            using = due = None
            if limit.total is not None and own.takes_part(kind):
                asked = published.reserved.get(kind, 0)
                using, due = self._of_total(kind, limit.total, own, others, asked, now)
            if limit.instance is not None or due is not None:
                types[kind] = TypeQuota(limit.instance, limit.total, using, due)
        for kind in self._using.keys() - {k for k, share in types.items() if share.due is not None}:
            del self._using[kind], self._reserved[kind]
            self._groups.pop(kind, None)
        self._looked = True
        ids = sorted([self._own, *(p.id for p in others)])
        settled = self._settled(None, ids, now)
        self._learn_of_types(own, others, settled)
        found = InstanceQuota(
            self._of_workers(limits, own, ids, settled),
            types,
            tuple(sorted(kind for kind, limit in limits.types.items() if limit.paused)),
        )
        held = {kind: max(n, own.held.get(kind, 0)) for kind, n in found.shares.items()}
        return found, replace(own, held={**own.held, **held}, reserved=dict(self._reserved))

    def telling(self, found: InstanceQuota) -> int:
        """The main process is told of it; returns the number that it will confirm."""
        return self._grants.told(found.shares)

    def _learn_of_types(self, own: Peer, others: Sequence[Peer], settled: bool) -> None:
        """More at once; fewer only in a settled group, as registrations may be lost."""
        found = frozenset().union(*(p.types for p in others if not p.stopping))
        self.known_elsewhere = (found if settled else self.known_elsewhere | found) - own.types

    def _of_workers(
        self, limits: ClusterLimits, own: Peer, ids: Sequence[str], settled: bool
    ) -> int | None:
        """Fewer at once; more of a total only in a settled group, until then as many as it has."""
        goal = workers_of(limits, self._own, ids)
        if settled or limits.workers_total is None or goal is None:
            self._workers = goal
            return goal
        has = own.workers if self._workers is None else self._workers
        self._workers = None if has is None else min(has, goal)
        return self._workers

    def _of_total(
        self, kind: str, total: int, own: Peer, others: Sequence[Peer], asked: int, now: float
    ) -> tuple[int, int]:
        sharing = [own, *(p for p in others if p.takes_part(kind))]
        needs = {p.id: p.needs.get(kind, total) for p in sharing}
        goal = fair_shares(total, needs, kind)[self._own]
        due = goal or fair_shares(total, {**needs, self._own: 1}, kind)[self._own]
        # A total that is new finds the type unlimited here, and holds at once; to one that stood
        # before this instance came, it comes with nothing.
        using = self._using.get(kind, total if self._looked else own.held.get(kind, 0))
        # Where a total was lowered, or registrations were lost, more may run than it allows.
        using = min(using, goal, max(0, total - sum(p.held.get(kind, 0) for p in others)))
        if self._settled(kind, (total, sorted(needs)), now):
            free = total - sum(p.reserves(kind) for p in others)
            using = max(using, min(goal, asked, free))
        self._using[kind] = using
        self._reserved[kind] = max(using, goal)
        return using, due

    def _settled(self, kind: str | None, group: object, now: float) -> bool:
        if self._groups.get(kind, (None,))[0] != group:
            self._groups[kind] = (group, now)
        return now - self._groups[kind][1] >= SETTLE
