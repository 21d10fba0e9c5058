"""Quota of limits: they add up, everybody agrees, and a change never lets too many run."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from processing.cluster.limits import ClusterLimits, TypeLimit
from processing.cluster.quota import (
    SETTLE,
    InstanceQuota,
    Peer,
    Quota,
    TypeQuota,
    peer,
    share_of,
    workers_of,
)

KIND = "payment.create"
IDS = st.lists(st.text("abc-19", min_size=1, max_size=4), min_size=1, max_size=9, unique=True)


@given(total=st.integers(1, 60), ids=IDS, what=st.text(max_size=5), shuffle=st.randoms())
def test_shares_add_up_to_the_total_whoever_computes_them(
    total: int, ids: list[str], what: str, shuffle: random.Random
) -> None:
    shares = {one: share_of(total, one, ids, what) for one in ids}
    assert sum(shares.values()) == total
    assert max(shares.values()) - min(shares.values()) <= 1
    other = ids.copy()
    shuffle.shuffle(other)
    assert shares == {one: share_of(total, one, other, what) for one in other}


@given(ids=IDS, new=st.text("xyz", min_size=1, max_size=4))
def test_one_more_instance_takes_from_others_and_moves_nothing_between_them(
    ids: list[str], new: str
) -> None:
    before = {one: share_of(1, one, ids, KIND) for one in ids}
    after = {one: share_of(1, one, [*ids, new], KIND) for one in ids}
    assert all(after[one] <= before[one] for one in ids)


def test_the_remainders_of_many_types_fall_to_different_instances() -> None:
    ids = ["a", "b", "c", "d"]
    first = {one for n in range(40) for one in ids if share_of(1, one, ids, f"type-{n}")}
    assert first == set(ids)


@given(ids=IDS, each=st.none() | st.integers(1, 9), total=st.none() | st.integers(1, 40))
def test_workers(ids: list[str], each: int | None, total: int | None) -> None:
    shares = [workers_of(ClusterLimits(each, total), one, ids) for one in ids]
    if total is None:
        assert set(shares) == {each}
        return
    numbers = [n for n in shares if n is not None]
    assert len(numbers) == len(ids)
    assert min(numbers) >= 1
    assert sum(numbers) <= max(total, len(ids))
    if each is None:
        assert sum(numbers) == max(total, len(ids))
    else:
        assert max(numbers) <= each


def limits(
    total: int | None = None, instance: int | None = None, paused: bool = False
) -> ClusterLimits:
    return ClusterLimits(types={KIND: TypeLimit(total, instance, paused)})


def test_what_is_set_for_each_instance_holds_at_once_both_ways() -> None:
    shares = Quota("a")
    for most in (3, 9, 1):
        assert shares.look(limits(instance=most), [], {}, 0.0).types == {
            KIND: TypeQuota(most, None, None)
        }


def test_paused_types_are_named() -> None:
    assert Quota("a").look(limits(paused=True), [], {}, 0.0) == InstanceQuota(paused=(KIND,))


def test_a_total_set_while_it_runs_holds_at_once() -> None:
    shares = Quota("a")
    shares.look(ClusterLimits(), [Peer("a"), Peer("b")], {}, 0.0)
    share = shares.look(limits(8), [Peer("a"), Peer("b")], {}, 1.0).types[KIND]
    assert share == TypeQuota(None, 4, 4)


def test_who_comes_to_a_total_starts_with_nothing_and_gets_its_share_when_all_have_seen_it() -> (
    None
):
    shares, peers = Quota("b"), [Peer("a", held={KIND: 8}), Peer("b")]
    assert shares.look(limits(8), peers, {}, 0.0).types[KIND] == TypeQuota(None, 0, 4)
    shrunk = [Peer("a", held={KIND: 4}), Peer("b")]
    assert shares.look(limits(8), shrunk, {}, 1.0).types[KIND] == TypeQuota(None, 0, 4)
    assert shares.look(limits(8), shrunk, {}, SETTLE).types[KIND] == TypeQuota(None, 4, 4)


def test_what_others_still_run_is_waited_for() -> None:
    shares = Quota("b")
    for now, theirs, mine in ((0.0, 8, 0), (5.0, 8, 0), (6.0, 7, 1), (7.0, 5, 3), (8.0, 4, 4)):
        peers = [Peer("a", held={KIND: theirs}), Peer("b")]
        assert shares.look(limits(8), peers, {}, now).types[KIND].now == mine


def test_a_new_process_goes_on_with_what_the_main_process_has() -> None:
    share = Quota("a").look(limits(8), [Peer("a"), Peer("b")], {KIND: 4}, 0.0).types[KIND]
    assert share == TypeQuota(None, 4, 4)


def test_less_holds_at_once_and_more_later() -> None:
    shares, alone = Quota("a"), [Peer("a")]
    shares.look(ClusterLimits(), alone, {}, 0.0)
    assert shares.look(limits(8), alone, {}, 0.0).types[KIND].now == 8
    assert shares.look(limits(2), alone, {}, 1.0).types[KIND].now == 2
    assert shares.look(limits(9), alone, {}, 2.0).types[KIND].now == 2
    assert shares.look(limits(9), alone, {}, 2.0 + SETTLE).types[KIND].now == 9
    assert shares.look(ClusterLimits(), alone, {}, 9.0).types == {}
    assert shares.look(limits(3), alone, {}, 9.0).types[KIND].now == 3


def test_a_total_is_shared_among_those_who_know_the_type() -> None:
    peers = [Peer("a", frozenset({KIND})), Peer("b", frozenset({"other"})), Peer("c")]
    shares = {}
    for own in "abc":
        mine = Quota(own)
        mine.look(ClusterLimits(), peers, {}, 0.0)
        shares[own] = mine.look(limits(8), peers, {}, 0.0).types.get(KIND)
    assert shares == {"a": TypeQuota(None, 4, 4), "b": None, "c": TypeQuota(None, 4, 4)}


def test_a_registration_without_the_facts_is_a_peer_all_the_same() -> None:
    assert peer({"id": "a"}) == Peer("a")
    assert peer({"id": "a", "types": ["x"], "at_once": {"x": 2}}) == Peer(
        "a", frozenset({"x"}), {"x": 2}
    )


@dataclass
class Instance:
    """Looks once a second, publishes before it acts, and runs as much as it may."""

    id: str
    next_look: float
    shares: Quota = field(init=False)
    using: int = 0
    running: int = 0
    leaving: bool = False

    def __post_init__(self) -> None:
        self.shares = Quota(self.id)

    @property
    def held(self) -> dict[str, int]:
        return {KIND: max(self.using, self.running)}


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), total=st.integers(1, 12))
def test_instances_that_come_and_go_never_run_more_than_the_total(seed: int, total: int) -> None:
    chance = random.Random(seed)
    live: dict[str, Instance] = {}
    published: dict[str, Peer] = {}
    grew = False
    for step in range(1200):
        now = step * 0.1
        if chance.random() < 0.02 and len(live) < 5:
            live[f"i{step}"] = Instance(f"i{step}", now + chance.random())
        if chance.random() < 0.01 and live:
            chance.choice(list(live.values())).leaving = True
        for one in list(live.values()):
            # What runs ends by and by; what may run is begun.
            one.running -= sum(chance.random() < 0.03 for _ in range(one.running))
            if not one.leaving:
                one.running = max(one.running, one.using - chance.randint(0, 1))
            elif one.running == 0:
                del live[one.id]
                published.pop(one.id, None)
                continue
            if now >= one.next_look:
                one.next_look = now + chance.uniform(0.8, 1.1)
                published[one.id] = Peer(one.id, held=one.held)
                share = one.shares.look(limits(total), list(published.values()), one.held, now)
                one.using = share.types[KIND].now or 0
                published[one.id] = Peer(one.id, held=one.held)
                grew |= one.using > 0
        assert sum(one.running for one in live.values()) <= total
    assert grew or not live
