"""Quota of limits: they add up, everybody agrees, and a change never lets too many run."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from processing.cluster.limits import MOST_WORKERS, ClusterLimits, TypeLimit
from processing.cluster.quota import (
    SETTLE,
    InstanceQuota,
    Peer,
    Quota,
    TypeQuota,
    peer,
    workers_of,
)

KIND = "payment.create"
IDS = st.lists(st.text("abc-19", min_size=1, max_size=4), min_size=1, max_size=9, unique=True)


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


class Looking:
    """One instance that looks at what the test says that the others have registered."""

    def __init__(self, own: str = "a") -> None:
        self.quota = Quota(own)
        self.published: Peer = Peer(own)

    def look(
        self,
        limits: ClusterLimits,
        *others: Peer,
        now: float = 0.0,
        held: Mapping[str, int] | None = None,
        needs: int | None = None,
        confirmed: int = 99,
        types: frozenset[str] = frozenset(),
        workers: int | None = None,
    ) -> InstanceQuota:
        """With what it published at the look before among the registrations."""
        wanted = {} if needs is None else {KIND: needs}
        own = Peer(self.published.id, types, held=held or {}, needs=wanted, workers=workers)
        peers = [self.published, *others]
        found, self.published = self.quota.look(limits, peers, own, confirmed, now)
        return found

    def share(self, limits: ClusterLimits, *others: Peer, **facts: object) -> TypeQuota:
        return self.look(limits, *others, **facts).types[KIND]  # type: ignore[arg-type]


def test_what_is_set_for_each_instance_holds_at_once_both_ways() -> None:
    one = Looking()
    for most in (3, 9, 1):
        assert one.share(limits(instance=most)) == TypeQuota(most, None, None, None)


def test_paused_types_are_named() -> None:
    assert Looking().look(limits(paused=True)) == InstanceQuota(paused=(KIND,))


def test_a_total_set_while_it_runs_holds_at_once() -> None:
    one = Looking()
    one.look(ClusterLimits(), Peer("b"))
    assert one.share(limits(8), Peer("b"), now=1.0) == TypeQuota(None, 8, 4, 4)


def test_who_comes_to_a_total_starts_with_nothing_and_gets_its_share_when_all_have_seen_it() -> (
    None
):
    one = Looking("b")
    assert one.share(limits(8), Peer("a", held={KIND: 8})) == TypeQuota(None, 8, 0, 4)
    shrunk = Peer("a", held={KIND: 4}, reserved={KIND: 4})
    assert one.share(limits(8), shrunk, now=1.0) == TypeQuota(None, 8, 0, 4)
    assert one.share(limits(8), shrunk, now=SETTLE) == TypeQuota(None, 8, 4, 4)


def test_what_others_still_run_or_reserve_is_waited_for() -> None:
    one = Looking("b")
    for now, held, reserve, mine in ((0, 8, 4, 0), (5, 8, 4, 0), (6, 7, 4, 1), (7, 4, 6, 2)):
        other = Peer("a", held={KIND: held}, reserved={KIND: reserve})
        assert one.share(limits(8), other, now=float(now)).now == mine


def test_what_is_wanted_is_reserved_and_used_only_when_that_was_seen() -> None:
    one, other = Looking(), Peer("b", held={KIND: 0}, needs={KIND: 0})
    one.look(limits(8), other, needs=0)
    one.share(limits(8), other, needs=0, now=SETTLE)
    assert one.share(limits(8), other, needs=0, now=9.0).now == 4
    assert one.share(limits(8), other, needs=9, now=10.0).now == 4
    assert one.published.reserved == {KIND: 8}
    assert one.published.held == {KIND: 4}
    assert one.share(limits(8), other, needs=9, now=11.0).now == 8
    assert one.published.held == {KIND: 8}


def test_who_has_no_work_gives_its_share_up_and_is_due_one_as_soon_as_it_has_some() -> None:
    one, other = Looking(), Peer("b", needs={KIND: 40})
    one.look(ClusterLimits())
    assert one.share(limits(2), other) == TypeQuota(None, 2, 1, 1)
    assert one.share(limits(2), other, needs=0) == TypeQuota(None, 2, 0, 1)
    assert one.published.reserved == {KIND: 0}


def test_more_instances_with_work_than_may_run_leave_it_to_some_of_them() -> None:
    others, owns = [Peer(f"x{n}", needs={KIND: 5}) for n in range(3)], [f"i{n}" for n in range(9)]
    shares = [Looking(own).share(limits(3), *others, needs=1).due for own in owns]
    assert set(shares) == {0, 1}
    idle = [Looking(own).share(limits(3), *others, needs=0).due for own in owns]
    assert idle == shares, "who leaves them to others would take them as soon as it has none"


def test_what_the_main_process_was_told_is_held_until_it_has_confirmed_another_share() -> None:
    one, other = Looking(), Peer("b", needs={KIND: 9})
    one.look(ClusterLimits())
    first = one.quota.telling(one.look(limits(8), confirmed=0))
    assert one.published.held == {KIND: 8}
    second = one.quota.telling(one.look(limits(8), other, needs=1, confirmed=0))
    assert second > first
    one.look(limits(8), other, held={KIND: 1}, needs=1, confirmed=first)
    assert one.published.held == {KIND: 1}
    assert one.share(limits(8), other, held={KIND: 8}, needs=1, confirmed=first).now == 1
    assert one.published.held == {KIND: 8}


def test_a_new_process_goes_on_with_what_the_main_process_has() -> None:
    one = Looking()
    share = one.share(limits(8), Peer("b"), held={KIND: 4}, confirmed=7)
    assert share == TypeQuota(None, 8, 4, 4)
    assert one.quota.telling(InstanceQuota()) == 8


def test_less_holds_at_once_and_more_later() -> None:
    one = Looking()
    one.look(ClusterLimits())
    assert one.share(limits(8)).now == 8
    assert one.share(limits(2), now=1.0).now == 2
    assert one.share(limits(9), now=2.0).now == 2
    assert one.share(limits(9), now=2.0 + SETTLE).now == 9
    assert one.look(ClusterLimits(), now=9.0).types == {}
    assert one.share(limits(3), now=9.0).now == 3


def test_registrations_that_got_lost_let_no_share_grow_before_they_are_back() -> None:
    one, other = Looking(), Peer("b", held={KIND: 0}, needs={KIND: 0})
    one.look(limits(8), other, needs=9)
    assert one.share(limits(8), other, needs=9, now=SETTLE).now == 8
    less = Peer("b", held={KIND: 4}, reserved={KIND: 4})
    assert one.share(limits(8), less, needs=9, now=10.0).now == 4
    one.quota.unsettle()
    assert one.share(limits(8), other, needs=9, now=20.0).now == 4
    assert one.share(limits(8), other, needs=9, now=20.0 + SETTLE).now == 8


def test_a_total_is_shared_among_those_who_know_the_type() -> None:
    types = {"a": frozenset({KIND}), "b": frozenset({"other"}), "c": frozenset[str]()}
    peers = {name: Peer(name, known) for name, known in types.items()}
    shares = {}
    for own in "abc":
        one = Looking(own)
        others = [p for name, p in peers.items() if name != own]
        one.look(ClusterLimits(), *others)
        shares[own] = one.look(limits(8), *others, types=types[own]).types.get(KIND)
    half = TypeQuota(None, 8, 4, 4)
    assert shares == {"a": half, "b": None, "c": half}


def test_a_registration_without_the_facts_is_a_peer_all_the_same() -> None:
    assert peer({"id": "a"}) == Peer("a")
    facts = {"types": ["x"], "at_once": {"x": 2}, "reserved": {"x": 3}, "workers_wanted": 4}
    found = peer({"id": "a", **facts})
    assert found == Peer("a", frozenset({"x"}), held={"x": 2}, reserved={"x": 3}, workers=4)


def test_more_workers_of_a_total_come_when_the_group_has_settled_and_fewer_at_once() -> None:
    one = Looking()

    def workers(others: str, now: float, total: int | None = 12, most: int | None = None) -> object:
        peers = [Peer(other) for other in others]
        return one.look(ClusterLimits(most, total), *peers, now=now, workers=7).workers

    assert workers("", 0.0) == 7, "the others may not be registered yet"
    assert workers("", SETTLE) == 12
    assert workers("b", 3.0) == 6
    assert workers("bc", 4.0) == 4
    assert workers("b", 5.0) == 4
    assert workers("b", 5.0 + SETTLE) == 6
    one.quota.unsettle()
    assert workers("", 20.0) == 6, "all registrations are gone"
    assert workers("b", 21.0) == 6
    assert workers("b", 22.0, total=2) == 1
    assert workers("b", 21.0 + SETTLE, total=20) == 10
    assert workers("b", 24.0, total=30) == 15
    assert workers("c", 25.0, most=3) == 3
    assert workers("c", 26.0, total=None, most=9) == 9
    assert workers("d", 27.0, total=30) == 9
    assert workers("d", 28.0, total=None) is None
    assert workers("e", 29.0) == 6


def test_of_a_total_as_many_workers_as_configured_where_none_were_told_before_it_settles() -> None:
    one = Looking()
    assert one.look(ClusterLimits(None, 12), Peer("b")).workers is None
    assert one.look(ClusterLimits(None, 12), Peer("b"), now=SETTLE).workers == 6


def test_a_total_starts_no_more_workers_in_one_instance_than_its_setting_could() -> None:
    assert workers_of(ClusterLimits(None, 1_000_000), "a", ["a"]) == MOST_WORKERS


def test_what_others_know_is_forgotten_when_the_group_has_settled_without_them() -> None:
    one = Looking()
    other, own = Peer("b", frozenset({"x", "y"})), frozenset({"x"})

    def known(*others: Peer, now: float, types: frozenset[str] = own) -> frozenset[str]:
        one.look(ClusterLimits(), *others, now=now, types=types)
        return one.quota.known_elsewhere

    assert known(other, now=0.0) == {"y"}
    assert known(now=10.0) == {"y"}, "registrations that are gone may come back"
    assert known(now=10.0 + SETTLE) == frozenset()
    assert known(other, now=20.0) == {"y"}, "who comes is believed at once"
    assert known(other, now=21.0, types=frozenset({"y"})) == {"x"}
    one.quota.unsettle()
    assert known(now=30.0, types=frozenset({"y"})) == {"x"}, "nobody could look in between"
    known(other, now=40.0)
    assert known(Peer("b", other.types, stopping=True), now=40.0 + SETTLE) == frozenset()
