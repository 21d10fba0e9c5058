"""This instance among the others: its registration, and what it may take of the shared limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import redis

from processing.cluster.instances import Registration, instances
from processing.cluster.limits import ClusterLimits, RedisLimitsStore
from processing.cluster.other_groups import other_groups
from processing.cluster.other_journals import other_journals
from processing.cluster.quota import InstanceQuota, Peer, Quota, peer


class Membership:
    """Registers, reads limits and registrations, and says what holds here. One thread's own."""

    def __init__(
        self, client: redis.Redis, prefix: str, instance: str, *, interval: float, ttl: int
    ) -> None:
        """`interval`: seconds between two renewals of the registration, where nothing changes."""
        self._client = client
        self._prefix = prefix
        self._interval = interval
        self._registration = Registration(client, prefix, instance, ttl)
        self._limits = RedisLimitsStore(client, prefix)
        self._quota = Quota(instance)
        self._written: tuple[float, Peer] | None = None
        """When it was registered last, and as what."""
        self._instance = instance
        self._held: ClusterLimits | None = None
        """The limits as they were read last."""
        self._seen = Peer(instance)
        """What the main process had said of itself at the last look."""
        self.restored_at: datetime | None = None
        """When Redis had lost some and this instance put them back."""
        self.restored: list[str] = []
        """The fields that it put back then."""
        self.unread: tuple[str, ...] = ()
        """Unreadable fields of the limits."""
        self.left_out: tuple[str, ...] = ()
        """Names of registrations that could not be read at the last look."""
        self.other_groups: dict[str, tuple[str, ...]] = {}
        """Other group -> types that its instances handle as this one does, at the last look."""
        self.other_journals: dict[str, str] = {}
        """Instance of the same group -> the other journal that it uses, at the last look."""

    def turn(self, facts: Mapping[str, Any], now: float) -> InstanceQuota | None:
        """Looks at the limits, and registers where it is time to.

        `facts` is what the main process said of itself; before it has said what it holds, None is
        returned. Raises redis.RedisError, OSError or StoreUnavailable; then what held before holds.
        """
        own = self._seen = self._described(facts)
        if "at_once" not in facts:
            self._register(facts, own, now)
            return None
        limits = self._read_limits()
        self.unread = limits.unread
        left_out: list[str] = []
        peers = [peer(found) for found in instances(self._client, self._prefix, left_out)]
        self.left_out = tuple(left_out)
        others = [one for one in peers if one.id != self._instance]
        self.other_groups = other_groups(own.group, own.types, others) if own.group else {}
        self.other_journals = other_journals(own.group, own.journal, others)
        self._look_for_itself(peers)
        confirmed = facts.get("limits_number", 0)
        found, published = self._quota.look(limits, peers, own, confirmed, now)
        # Said before it is used: who comes now must not count on what this instance takes.
        self._register(facts, published, now)
        return found

    @property
    def known_elsewhere(self) -> frozenset[str]:
        """Types that other live instances know and this one does not, as far as it has seen."""
        return self._quota.known_elsewhere

    def news(self, facts: Mapping[str, Any]) -> bool:
        """Whether the main process says something else of what is limited than at the last look."""
        return self._described(facts) != self._seen

    def telling(self, found: InstanceQuota) -> int:
        """The main process is told of it; returns the number that it will confirm."""
        return self._quota.telling(found)

    def remove(self) -> None:
        """Says that this instance is gone. Raises redis.RedisError or OSError."""
        self._registration.remove()

    def _described(self, facts: Mapping[str, Any]) -> Peer:
        return peer({**facts, "id": self._instance})

    def _read_limits(self) -> ClusterLimits:
        limits = self._limits.read()
        if self._held is not None and limits.lacks(self._held):
            if restored := self._limits.restore(self._held):
                self.restored, self.restored_at = restored, datetime.now(UTC)
            limits = self._limits.read()
        self._held = limits
        return limits

    def away(self) -> None:
        """Redis could not be asked. Nobody knows who comes and goes before it answers again.

        The next call connects anew: the name may stand for another server by now.
        """
        self._quota.unsettle()
        self._client.connection_pool.disconnect()

    def _look_for_itself(self, peers: Sequence[Peer]) -> None:
        """Where its own registration is not what it wrote, others' are not to be relied on."""
        if self._written is None or self._written[1] not in peers:
            self._written = None
            self._quota.unsettle()

    def _register(self, facts: Mapping[str, Any], own: Peer, now: float) -> None:
        if self._written is not None:
            at, written = self._written
            if written == own and now - at < self._interval:
                return
        restored = {} if self.restored_at is None else {"limits_restored_at": self.restored_at}
        self._written = None  # what stands there is not known where the answer is lost
        self._registration.renew(
            {**facts, **restored, "at_once": own.held, "reserved": own.reserved, "needs": own.needs}
        )
        self._written = (now, own)
