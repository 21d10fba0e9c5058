"""What this instance may take of limits that all instances share. Pure.

Every instance computes the same shares from the same limits and registrations, and they never add
up to more than the total. But instances do not see a change at the same moment, and what runs runs
on when a share gets smaller. So less holds at once, and more only

- after the view has been the same for `SETTLE` seconds, in which all others have seen it too, and
- up to what the others leave: each says in its registration how many it may have at once now.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from processing.cluster.limits import ClusterLimits

SETTLE = 2.5
"""Seconds before a larger share is used; longer than two looks at the limits take."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A live instance, as its registration describes it."""

    id: str
    types: frozenset[str] = frozenset()
    """The request types that it knows; empty as long as it has not said."""
    held: Mapping[str, int] = field(default_factory=dict)
    """Type -> the most that it may have at once, or still has."""
    stopping: bool = False
    """It takes nothing new."""

    def takes_part(self, kind: str) -> bool:
        """Whether a total of this type is shared out to it."""
        return not self.types or kind in self.types


def peer(facts: Mapping[str, Any]) -> Peer:
    """The instance behind a registration."""
    return Peer(
        str(facts["id"]),
        frozenset(facts.get("types") or ()),
        facts.get("at_once") or {},
        bool(facts.get("stopping")),
    )


def known_elsewhere(own: Collection[str], others: Iterable[Peer]) -> frozenset[str]:
    """Types that this instance does not know, and another one that takes work does.

    `own` are the types of this one; as long as it has not said any, nothing is known of it.
    """
    known = frozenset().union(*(p.types for p in others if not p.stopping))
    return known - frozenset(own) if own else frozenset()


class TypeQuota(NamedTuple):
    """Of one type, in this instance. None: not limited."""

    instance: int | None
    """As set for each instance; instead of the handler's `max_at_once`."""
    now: int | None
    """Of the total, what may be used now."""
    due: int | None
    """Of the total, what falls to this instance; `now` gets there soon. 0: others run them."""


@dataclass(frozen=True, slots=True)
class InstanceQuota:
    """What holds in this instance."""

    workers: int | None = None
    """None: as configured."""
    types: Mapping[str, TypeQuota] = field(default_factory=dict)
    paused: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """As it crosses the channel: type -> (instance, now, due)."""
        types = {kind: tuple(share) for kind, share in self.types.items()}
        return {"workers": self.workers, "types": types, "paused": list(self.paused)}


def share_of(total: int, own: str, ids: Collection[str], what: str) -> int:
    """This instance's part of a total; those of all `ids` add up to it.

    The remainder goes to instances in an order of the type's own, so that many types of which few
    may run do not all fall to the same instance, and a change of the group moves few of them.
    """
    part, rest = divmod(total, len(ids))
    return part + (own in _first(rest, ids, what))


def workers_of(limits: ClusterLimits, own: str, ids: Collection[str]) -> int | None:
    """Worker processes of this instance; None: as configured.

    At least one each, even where the total is less than there are instances: one that has
    partitions and no worker would keep their requests from everybody.
    """
    if limits.workers_total is None:
        return limits.workers
    part = max(1, share_of(limits.workers_total, own, ids, "workers"))
    return part if limits.workers is None else min(part, limits.workers)


def _first(count: int, ids: Collection[str], what: str) -> list[str]:
    return sorted(ids, key=lambda one: (_rank(what, one), one))[:count]


def _rank(what: str, id: str) -> bytes:
    return hashlib.blake2b(f"{what}\0{id}".encode(), digest_size=8).digest()


class Quota:
    """This instance's shares over time."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._using: dict[str, int] = {}
        """Type -> what may be used of its total now."""
        self._views: dict[str, tuple[object, float]] = {}
        """Type -> what its share was made of, and since when that is so."""
        self._looked = False

    def look(
        self, limits: ClusterLimits, peers: Sequence[Peer], held: Mapping[str, int], now: float
    ) -> InstanceQuota:
        """What holds from now on. `held`: what this instance itself may have at once, by type."""
        others = [p for p in peers if p.id != self._own]
        me = next((p for p in peers if p.id == self._own), Peer(self._own))
        types: dict[str, TypeQuota] = {}
        for kind, limit in limits.types.items():
            using = due = None
            if limit.total is not None and me.takes_part(kind):
                using, due = self._of_total(kind, limit.total, others, held, now)
            if limit.instance is not None or due is not None:
                types[kind] = TypeQuota(limit.instance, using, due)
        for kind in self._using.keys() - {k for k, share in types.items() if share.due is not None}:
            del self._using[kind], self._views[kind]
        self._looked = True
        return InstanceQuota(
            workers_of(limits, self._own, [self._own, *(p.id for p in others)]),
            types,
            tuple(sorted(kind for kind, limit in limits.types.items() if limit.paused)),
        )

    def _of_total(
        self, kind: str, total: int, others: Sequence[Peer], held: Mapping[str, int], now: float
    ) -> tuple[int, int]:
        ids = [self._own, *(p.id for p in others if p.takes_part(kind))]
        view = (total, sorted(ids))
        if self._views.get(kind, (None,))[0] != view:
            self._views[kind] = (view, now)
        due = share_of(total, self._own, ids, kind)
        # Somebody who has more than is due to them still runs it; somebody who has less may be
        # about to take what is due.
        taken = sum(
            max(p.held.get(kind, 0), share_of(total, p.id, ids, kind) if p.id in ids else 0)
            for p in others
        )
        wanted = max(0, min(due, total - taken))
        # A total that is new finds the type unlimited here, and holds at once; to one that stood
        # before this instance came, it comes with nothing.
        using = self._using.get(kind, total if self._looked else held.get(kind, 0))
        if wanted < using or now - self._views[kind][1] >= SETTLE:
            using = wanted
        self._using[kind] = using
        return using, due
