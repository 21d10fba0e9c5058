"""What instances take of shared limits, with their registrations in a real Redis and a clock of the
test's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from processing.cluster.instances import connect
from processing.cluster.limits import RedisLimitsStore, Setting
from processing.cluster.membership import Membership
from stack import Stack

CONFIGURED, TOTAL = 2, 12


class Member:
    """An instance whose main process applies at once what it is told."""

    def __init__(self, client: redis.Redis, prefix: str, name: str) -> None:
        self.membership = Membership(client, prefix, name, interval=5.0, ttl=15)
        self.workers = CONFIGURED

    def turn(self, now: float) -> None:
        facts: dict[str, Any] = {"at_once": {}, "workers_wanted": self.workers}
        found = self.membership.turn(facts, now)
        assert found is not None
        self.workers = found.workers or CONFIGURED


class Cluster:
    """Three that look each second, one after the other."""

    def __init__(self, client: redis.Redis, prefix: str) -> None:
        self.members = [Member(client, prefix, name) for name in "abc"]
        self._client = client
        self._prefix = prefix
        self.now = 0.0

    @property
    def workers(self) -> list[int]:
        return [member.workers for member in self.members]

    def turns(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1.0
            for member in self.members:
                member.turn(self.now)
                assert sum(self.workers) <= TOTAL, self.workers

    def lose_all(self) -> None:
        """Limits, registrations and their index, as a FLUSHALL does."""
        keys: Any = self._client.keys(f"{self._prefix}:*")
        assert self._client.delete(*keys)


@pytest.fixture
def cluster(stack: Stack, prefix: str) -> Iterator[Cluster]:
    with connect(stack.redis) as client:
        RedisLimitsStore(client, prefix).change({Setting("workers_total"): TOTAL})
        cluster = Cluster(client, prefix)
        yield cluster
        cluster.lose_all()


def test_workers_of_a_total_stay_within_it_whatever_registrations_get_lost(
    cluster: Cluster,
) -> None:
    cluster.turns(1)
    assert cluster.workers == [CONFIGURED] * 3, "who came first has not seen the others"
    cluster.turns(4)
    assert cluster.workers == [4, 4, 4]

    cluster.lose_all()
    cluster.turns(5)
    assert cluster.workers == [4, 4, 4]

    # Redis answers one of them once, and is away again for long enough.
    cluster.lose_all()
    first = cluster.members[0]
    first.turn(cluster.now + 1.0)
    first.membership.away()
    cluster.now += 10.0
    cluster.turns(5)
    assert cluster.workers == [4, 4, 4]

    cluster.members.pop().membership.remove()
    cluster.turns(5)
    assert cluster.workers == [6, 6], "what is free for good goes to the others"
