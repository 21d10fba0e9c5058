"""Shares that move with the work: whatever comes when, the total holds, and none stays idle.

Instances as the maintenance and the main process make them, with Redis as a dict. Every message
between the two and every access to Redis is a step of its own, and steps of all come in any order.
"""

from __future__ import annotations

import random
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processing.cluster.limits import ClusterLimits, TypeLimit
from processing.cluster.quota import SETTLE, InstanceQuota, Peer, Quota

# Many steps of pure code, three times slower where its branches are measured.
pytestmark = pytest.mark.no_cover

KIND = "payment.create"
SEEDS = st.integers(0, 2**32)
CONFIGURED, WORKERS = 2, 12
"""Worker processes: of each instance as it starts, and of all together."""


def limits(total: int) -> ClusterLimits:
    return ClusterLimits(workers_total=WORKERS, types={KIND: TypeLimit(total)})


class Instance:
    """What runs is begun and ended by the main process, as far as it was told."""

    def __init__(self, id: str, total: int) -> None:
        self.id = id
        self.total = total
        self.quota = Quota(id)
        self.written: Peer | None = None
        # The main process
        self.backlog = self.running = self.may = self.number = 0
        self.workers = CONFIGURED
        self.told: deque[tuple[int, int, int]] = deque()
        self.said: deque[tuple[Peer, int]] = deque()
        # What the maintenance process knows of it, and its open look
        self.facts: tuple[Peer, int] | None = None
        self.read: list[Peer] | None = None
        self.found: tuple[InstanceQuota, Peer] | None = None
        self.last: InstanceQuota | None = None

    def work(self, chance: random.Random) -> None:
        if self.running and chance.random() < 0.4:
            self.running -= 1
        elif self.backlog and self.running < self.may:
            self.backlog -= 1
            self.running += 1

    def say(self) -> None:
        held = {KIND: max(self.may, self.running)}
        needs = {KIND: min(self.total, self.backlog + self.running)}
        said = Peer(self.id, held=held, needs=needs, workers=self.workers)
        self.said.append((said, self.number))

    def hear(self) -> None:
        """One message of either direction."""
        if self.told:
            self.number, self.may, self.workers = self.told.popleft()
        if self.said and self.read is None:
            self.facts = self.said.popleft()

    def turn(self, redis: dict[str, Peer], now: float) -> None:
        """The next part of a look: read, decide and write, tell."""
        if self.facts is None:
            return
        if self.read is None:
            self.read = list(redis.values())
            if self.written is None or self.written not in self.read:
                self.quota.unsettle()
        elif self.found is None:
            own, number = self.facts
            self.found = self.quota.look(limits(self.total), self.read, own, number, now)
            redis[self.id] = self.written = self.found[1]
        else:
            if self.found[0] != self.last:
                self.last = self.found[0]
                number, share = self.quota.telling(self.last), self.last.types[KIND].now or 0
                self.told.append((number, share, self.last.workers or CONFIGURED))
            self.read = self.found = None

    def step(self, name: str, group: Group, now: float) -> None:
        match name:
            case "work":
                self.work(group.chance)
            case "say":
                self.say()
            case "hear":
                self.hear()
            case "turn":
                self.turn(group.redis, now)
            case "burst":
                group.burst()
            case _:
                _come_and_go(group, self)

    def round(self, redis: dict[str, Peer], now: float) -> None:
        """A heartbeat, a look, and what it says arrives."""
        while self.read is not None:
            self.turn(redis, now)
        self.say()
        while self.said or self.told:
            self.hear()
        for _ in range(3):
            self.turn(redis, now)
        while self.told:
            self.hear()


class Group:
    """Instances that come, go and die."""

    def __init__(self, seed: int, total: int) -> None:
        self.chance = random.Random(seed)
        self.total = total
        self.live: dict[str, Instance] = {}
        self.redis: dict[str, Peer] = {}
        self.count = 0
        self.most = 0

    @property
    def workers(self) -> int:
        return sum(one.workers for one in self.live.values())

    def join(self) -> Instance:
        self.count += 1
        one = Instance(f"i{self.count}", self.total)
        self.live[one.id] = one
        return one

    def burst(self) -> None:
        """Needs change everywhere before anybody has heard of the others'."""
        for one in self.live.values():
            one.backlog = self.chance.choice((0, 20))
            one.say()

    def check(self) -> None:
        running = sum(one.running for one in self.live.values())
        self.most = max(self.most, running)
        assert running <= self.total, {one.id: vars(one) for one in self.live.values()}

    def converge(self, now: float) -> None:
        """Steady needs for some rounds."""
        for _ in range(2 * len(self.live) + 6):
            now += SETTLE
            for one in self.live.values():
                one.running, one.backlog = 0, one.backlog + one.running
                one.round(self.redis, now)
                self.check()


STEPS = (*("work",) * 30, *("say",) * 20, *("hear",) * 30, *("turn",) * 60, "burst", "rare")


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, total=st.integers(1, 5))
def test_in_any_order_of_steps_never_more_run_than_the_total(seed: int, total: int) -> None:
    group = Group(seed, total)
    chance, now = group.chance, 0.0
    for _ in range(2):
        group.join()
    one, left = group.join(), 1
    for _ in range(1500):
        now += chance.choice((0.0, 0.1, 0.5, SETTLE))
        if not (left := left - 1) or one.id not in group.live:
            # Some take many steps while others stand still.
            one, left = chance.choice(list(group.live.values())), chance.choice((1, 2, 40))
        one.step(chance.choice(STEPS), group, now)
        group.check()


def _come_and_go(group: Group, one: Instance) -> None:
    match group.chance.randrange(3):
        case 0 if len(group.live) < 4:
            group.join()
        case 1 if len(group.live) > 2:
            # Killed: its registration stays for a while, nobody renews it.
            del group.live[one.id]
        case 2:
            for dead in group.redis.keys() - group.live.keys():
                del group.redis[dead]


def test_two_that_see_the_same_free_places_at_the_same_moment_do_not_both_take_them() -> None:
    group = Group(0, 3)
    one, two, gives = group.join(), group.join(), group.join()
    gives.backlog = 20
    group.converge(0.0)
    assert [one.may, two.may, gives.may] == [0, 0, 3]

    gives.backlog = gives.running = 0
    for second in range(3):
        gives.round(group.redis, 100.0 + second)
    assert gives.may == group.redis[gives.id].held[KIND] == 1
    for each in (one, two):
        each.backlog = 20
        each.say()
        each.hear()
        each.turn(group.redis, 103.0)
    for _ in range(3):  # both have read, and neither knows what the other is about to do
        for each in (one, two):
            each.turn(group.redis, 103.0)
            each.hear()
    assert one.may + two.may + gives.may <= 3
    group.converge(110.0)
    assert [one.may, two.may, gives.may] == [2, 1, 0] or [one.may, two.may] == [1, 2]


@settings(max_examples=40, deadline=None)
@given(
    seed=SEEDS,
    total=st.integers(1, 9),
    backlogs=st.lists(st.integers(0, 20), min_size=1, max_size=5),
)
def test_what_is_idle_moves_to_where_the_work_is(
    seed: int, total: int, backlogs: list[int]
) -> None:
    """From any state, a bounded number of heartbeats after needs have become steady."""
    group = Group(seed, total)
    for _ in backlogs:
        group.join()
    for _ in range(100):
        one = group.chance.choice(list(group.live.values()))
        one.backlog = group.chance.randrange(20)
        for _ in range(group.chance.randrange(4)):
            one.work(group.chance)
            one.say()
            one.hear()
            one.turn(group.redis, group.chance.random() * 100)
        group.check()
    for one, backlog in zip(group.live.values(), backlogs, strict=True):
        one.backlog, one.running = backlog, 0
    group.converge(1000.0)
    used = sum(min(one.may, one.backlog) for one in group.live.values())
    assert used == min(total, sum(backlogs))


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, total=st.integers(2, 9))
def test_registrations_lost_under_load_let_nobody_count_on_what_others_hold(
    seed: int, total: int
) -> None:
    """Here looks come as often as they do: that is what `SETTLE` goes by.

    All start at the same moment, which is a loss of all registrations, too.
    """
    group = Group(seed, total)
    chance = group.chance
    due = {group.join().id: chance.random() for _ in range(3)}
    workers: list[int] = []
    for step in range(500):
        now = step * 0.05
        for one in list(group.live.values()):
            if chance.random() < 0.05:
                one.backlog = chance.choice((0, 1, 20))
            one.work(chance)
            if now >= due[one.id]:
                due[one.id] = now + chance.uniform(0.8, 1.1)
                one.round(group.redis, now)
        group.check()
        workers.append(group.workers)
        if now > 6.0 and chance.random() < 0.01:
            group.redis.clear()
    assert group.most > 0
    assert max(workers) == WORKERS
    assert min(workers[workers.index(WORKERS) :]) == WORKERS, "nobody has come or gone"
