"""One suite for every status store: what producers and workers may rely on."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from feedback.contract.states import MAX_RUN, RANK, State
from feedback.status.hints import hinted_ids
from feedback.status.memory_store import MemoryStatusStore
from feedback.status.redis_store import RedisStatusStore
from feedback.status.status import Status, StatusFields, StatusWrite
from feedback.status.store import StatusStore
from stack import Stack
from tests.support import eventually
from tests.support.statuses import AT, standing, write

_numbers = itertools.count()


@dataclass
class Part:
    """A store and what the suite does to it."""

    store: StatusStore
    forget: Callable[[], None]
    pass_seconds: Callable[[float], None]


@pytest.fixture(params=["memory", "redis"])
def part(request: pytest.FixtureRequest) -> Iterator[Part]:
    if request.param == "memory":
        now = [0.0]
        store = MemoryStatusStore(lambda: now[0])

        def move(seconds: float) -> None:
            now[0] += seconds

        yield Part(store, store.forget, move)
        return
    stack: Stack = request.getfixturevalue("stack")
    redis_store = RedisStatusStore(stack.redis, request.getfixturevalue("prefix"), timeout=30.0)
    with redis.Redis.from_url(stack.redis) as client:

        def forget() -> None:
            for key in client.scan_iter(f"{redis_store.prefix}:*"):
                client.delete(key)

        def move_on(seconds: float) -> None:
            for key in client.scan_iter(f"{redis_store.prefix}:*"):
                client.pexpire(key, max(0, client.pttl(key) - round(seconds * 1000)))

        yield Part(redis_store, forget, move_on)
    redis_store.close()


@pytest.fixture
def store(part: Part) -> StatusStore:
    return part.store


def fresh_id() -> str:
    return f"id {next(_numbers)}"


def test_what_was_written_is_read_in_the_order_asked_for(store: StatusStore) -> None:
    store.write([write("a", State.DONE), write("ü b", State.RUNNING)])
    read = store.read(["ü b", "unknown", "a", "a"])
    assert [status and (status.id, status.state) for status in read] == [
        ("ü b", "running"),
        None,
        ("a", "done"),
        ("a", "done"),
    ]
    assert store.read([]) == []
    store.write([])


def test_more_than_one_slice(store: StatusStore) -> None:
    ids = [f"n{number}" for number in range(1_203)]
    store.write([write(name, State.DONE) for name in ids])
    assert [status and status.id for status in store.read(ids)] == ids


def test_what_a_row_says_for_good_is_set_whatever_stands(store: StatusStore) -> None:
    ids = [f"n{number}" for number in range(250)]
    store.write([write(name, State.DONE, 1) for name in ids[:2]])
    store.write(
        [
            write("n3", State.RUNNING, 2),
            *(write(name, State.REJECTED, 1, final=True, ttl=60 + n % 2)
              for n, name in enumerate(ids)),
            write("n0", State.FAILED, 3),
        ]
    )  # fmt: skip
    store.write([write("n1", State.RUNNING, 2)])
    assert {standing(store, name) for name in ids} == {("rejected", 1, "ok")}


def test_what_stays_keeps_no_other_of_its_batch_from_being_written(part: Part) -> None:
    ids = [f"n{number}" for number in range(250)]
    part.store.write([write(name, State.WAITING, 3) for name in ids[::3]])
    part.store.write([write(name, State.RUNNING, 2, ttl=n + 10) for n, name in enumerate(ids)])
    others = [name for n, name in enumerate(ids) if n % 3]
    assert {standing(part.store, name) for name in ids[::3]} == {("waiting", 3, "ok")}
    assert {standing(part.store, name) for name in others} == {("running", 2, "ok")}
    part.pass_seconds(59)  # each lives for as long as it was written to
    left = [name for n, name in enumerate(ids) if n % 3 == 0 or n >= 50]
    assert [name for name in ids if standing(part.store, name)] == left


def test_values_beyond_a_slice_of_bytes(store: StatusStore) -> None:
    result = b'"' + b"x" * 700_000 + b'"'
    writes = [
        StatusWrite(
            name,
            StatusFields(
                name, "t", State.DONE, 1, code="ok", attempt=1, at=AT, result=result
            ).encode(),
            60,
        )
        for name in ("a", "b", "c")
    ]
    store.write(writes)
    assert [len(status.result) for status in store.read(["a", "b", "c"]) if status] == [700_000] * 3


@pytest.mark.parametrize(
    "first, second, expected",
    [
        (("done", 1), ("running", 1), ("done", 1)),
        (("done", 1), ("running", 2), ("done", 1)),
        (("done", 1), ("rejected", 2), ("done", 1)),
        (("running", 2), ("failed", 1), ("running", 2)),
        (("running", 2), ("done", 1), ("done", 1)),  # final wins whatever the run
        (("failed", 1), ("accepted", 0), ("failed", 1)),
        (("accepted", 0), ("accepted", 0), ("accepted", 0)),
        (("dead", 1), ("running", 2), ("running", 2)),  # reopened
        (("dead", 1), ("cancelled", 1), ("dead", 1)),
        (("dead", 1), ("waiting", 1), ("dead", 1)),
        (("dead", 1), ("done", 1), ("done", 1)),
        (("failed", 1), ("failed", 2), ("failed", 2)),
        (("in_doubt", 1), ("waiting", 2), ("waiting", 2)),
    ],
)
def test_which_status_stands(
    store: StatusStore,
    first: tuple[str, int],
    second: tuple[str, int],
    expected: tuple[str, int],
) -> None:
    name = fresh_id()
    for state, run in (first, second):
        store.write([write(name, State(state), run)])
    assert standing(store, name) == (*expected, "ok")


@pytest.mark.parametrize("state", ["in_doubt", "waiting", "dead", "done"])
def test_only_a_doubt_is_renewed(store: StatusStore, state: str) -> None:
    name, later = fresh_id(), AT + timedelta(seconds=1)
    for at in (AT, later):
        value = StatusFields(name, "t", State(state), 1, code="timeout", attempt=1, at=at).encode()
        store.write([StatusWrite(name, value, 60)])
    (status,) = store.read([name])
    assert status is not None
    assert status.at == (later if state == "in_doubt" else AT)


@pytest.mark.parametrize(
    "first, second", [("waiting", "waiting"), ("dead", "waiting"), ("in_doubt", "running")]
)
def test_beyond_the_last_run_number_a_later_time_stands(
    store: StatusStore, first: str, second: str
) -> None:
    name, later = fresh_id(), AT + timedelta(milliseconds=1)
    store.write([write(name, State(first), MAX_RUN), write(name, State(second), MAX_RUN + 1)])
    assert standing(store, name) == (first, MAX_RUN, "ok"), "of the same time"
    store.write([write(name, State(second), MAX_RUN + 2, at=later, code="later")])
    assert standing(store, name) == (second, MAX_RUN, "later")
    store.write([write(name, State(second), MAX_RUN + 1, at=AT)])
    assert standing(store, name) == (second, MAX_RUN, "later")
    store.write([write(name, State.DEAD, MAX_RUN + 2, at=AT)])
    assert standing(store, name) == ("dead", MAX_RUN, "ok"), "the same run's, by another clock"


@pytest.mark.parametrize(
    "first, expected",
    [
        (None, ("failed", 1)),
        (("accepted", 0), ("failed", 1)),
        (("running", 3), ("failed", 4)),
        (("failed", 3), ("failed", 4)),
        (("failed", 99_999), ("failed", 99_999)),
        (("waiting", 3), ("waiting", 3)),
        (("in_doubt", 3), ("in_doubt", 3)),
        (("dead", 3), ("dead", 3)),
        (("cancelled", 3), ("cancelled", 3)),
        (("done", 3), ("done", 3)),
    ],
)
def test_a_bump_takes_the_next_run_number(
    store: StatusStore, first: tuple[str, int] | None, expected: tuple[str, int]
) -> None:
    name = fresh_id()
    if first is not None:
        store.write([write(name, State(first[0]), first[1])])
    store.write([write(name, State.FAILED, 1, code="database_unavailable", bump=True)])
    found = standing(store, name)
    assert found is not None
    assert found[:2] == expected


@pytest.mark.parametrize("code", ["database_unavailable", "malformed", "shutdown", "handler_error"])
@pytest.mark.parametrize("state", ["waiting", "failed", "in_doubt", "dead", "done"])
def test_the_journal_is_heard_after_failures_it_never_saw(
    store: StatusStore, code: str, state: str
) -> None:
    name = fresh_id()
    for _ in range(5):  # an outage, sent again again and again
        store.write([write(name, State.FAILED, 1, code=code, bump=True)])
    assert standing(store, name) == ("failed", 5, code)
    store.write([write(name, State.RUNNING, 1)])
    assert standing(store, name) == ("failed", 5, code)
    store.write([write(name, State(state), 1)])
    assert standing(store, name) == (state, 1, "ok")


def test_a_waiting_of_an_earlier_time_does_not_replace_what_has_failed_since(
    store: StatusStore,
) -> None:
    """Pure computation: its row, which waited, is gone, and counts of runs begin anew."""
    half = timedelta(seconds=0.5)
    for moment in (AT, AT + half):
        for pause, kept in ((-half, "failed"), (timedelta(0), "waiting"), (half, "waiting")):
            name = fresh_id()
            failed = StatusFields(
                name, "t", State.FAILED, 2, code="handler_error", attempt=1, at=moment,
                journaled=False,
            )  # fmt: skip
            store.write([StatusWrite.of(failed)])
            store.write([write(name, State.WAITING, 1, at=moment + pause)])
            found = store.read([name])[0]
            assert found is not None
            assert (found.state, found.run) == (kept, 2 if kept == "failed" else 1)


def test_a_doubt_without_a_row_gives_way_to_what_a_row_says(store: StatusStore) -> None:
    for state, journaled, kept in (
        (State.WAITING, False, "waiting"), (State.DEAD, False, "dead"),
        (State.RUNNING, False, "in_doubt"), (State.WAITING, True, "in_doubt"),
    ):  # fmt: skip
        name = fresh_id()
        doubt = StatusFields(
            name, "t", State.IN_DOUBT, 2, code="shutdown", attempt=1, at=AT, journaled=journaled
        )
        store.write([StatusWrite.of(doubt)])
        store.write([write(name, State.FAILED, 1, at=AT - timedelta(seconds=1))])
        assert (standing(store, name) or "")[0] == "in_doubt", "an earlier run is another matter"
        store.write([write(name, state, 1)])
        assert (standing(store, name) or "")[0] == kept


steps = st.tuples(
    st.sampled_from(State),
    st.sampled_from((0, 1, 2, 3, MAX_RUN - 1, MAX_RUN, MAX_RUN + 1)),
    st.sampled_from(["ok", "shutdown", "database_unavailable", "malformed"]),
    st.booleans(),
    st.integers(0, 2),
)


def expected_after(history: list[tuple[State, int, str, bool, int]]) -> tuple[str, int, str]:
    """The rules once more, over tuples instead of text."""
    kept: tuple[State, int, str, bool, int] | None = None
    for state, number, code, bump, at in history:
        run = min(number, MAX_RUN)
        if kept is None:
            kept = state, run, code, bump, at
            continue
        old_rank, old_run, new_rank = RANK[kept[0]], kept[1], RANK[state]
        if old_rank == 9:
            continue
        if bump:
            if kept[0] in (State.ACCEPTED, State.RUNNING, State.FAILED):
                kept = state, min(old_run + 1, MAX_RUN), code, bump, at
            continue
        failed, doubt = kept[0] == State.FAILED, kept[0] == State.IN_DOUBT
        without_row = (kept[3] and (failed or doubt)) or (failed and kept[2] != "ok")
        unseen = without_row and new_rank >= 3 and ((new_rank > 3 and failed) or at >= kept[4])
        higher = run > old_run or (run == old_run and new_rank > old_rank and old_rank != 8)
        higher |= run == old_run == MAX_RUN and at > kept[4]
        renewed = (state, run) == kept[:2] and state is State.IN_DOUBT
        if new_rank == 9 or higher or unseen or renewed:
            kept = state, run, code, bump, at
    assert kept is not None
    return kept[0].value, kept[1], kept[2]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(steps, min_size=1, max_size=7))
def test_any_history_ends_as_the_rules_say(
    store: StatusStore, history: list[tuple[State, int, str, bool, int]]
) -> None:
    name = fresh_id()
    # One batch: what stands between the writes must count too.
    store.write(
        [
            write(name, state, run, code=code, bump=bump, at=AT + timedelta(seconds=at / 2))
            for state, run, code, bump, at in history
        ]
    )
    assert standing(store, name) == expected_after(history)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), steps), min_size=1, max_size=12))
def test_each_status_of_a_batch_is_compared_with_its_own(
    store: StatusStore, history: list[tuple[int, tuple[State, int, str, bool, int]]]
) -> None:
    names = [fresh_id() for _ in range(4)]
    store.write(
        [
            write(names[n], state, run, code=code, bump=bump, at=AT + timedelta(seconds=at / 2))
            for n, (state, run, code, bump, at) in history
        ]
    )
    for number, name in enumerate(names):
        own = [step for n, step in history if n == number]
        assert standing(store, name) == (expected_after(own) if own else None)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_whatever_the_order_of_arrival_the_latest_stands(
    store: StatusStore, data: st.DataObject
) -> None:
    # One final state at most: the journal lets one of them win.
    final = data.draw(st.sampled_from([None, State.DONE, State.REJECTED, State.SUPERSEDED]))
    states = st.sampled_from([state for state in State if RANK[state] <= 5])
    ways = data.draw(st.lists(st.tuples(st.integers(0, 3), states), min_size=1, max_size=5))
    order = data.draw(st.permutations([*ways, *([(1, final)] if final else [])]))
    name = fresh_id()
    for run, state in order:
        store.write([write(name, state, run)])
    latest = (1, final) if final else max(ways, key=lambda way: (way[0], RANK[way[1]]))
    assert standing(store, name) == (latest[1], latest[0], "ok")


def test_a_final_status_never_changes_under_racing_writers(store: StatusStore) -> None:
    name = fresh_id()
    seen: set[tuple[str, int, str] | None] = set()

    def race(number: int) -> None:
        for run in range(50):
            state = State.DONE if run == 25 else State.RUNNING
            store.write([write(name, state, run, code=f"w{number}")])
            status = store.read([name])[0]
            if status is not None and status.final:
                seen.add((status.state, status.run, status.code))

    threads = [threading.Thread(target=race, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 1


def test_a_status_ends_with_its_time_to_live(part: Part) -> None:
    part.store.write([write("short", State.DONE, ttl=1), write("long", State.DONE, ttl=60)])
    part.pass_seconds(1.1)
    assert standing(part.store, "short") is None
    assert standing(part.store, "long") == ("done", 1, "ok")


def test_a_refused_write_does_not_prolong_the_life_of_what_stands(part: Part) -> None:
    part.store.write([write("a", State.DONE, ttl=1), write("a", State.RUNNING, ttl=60)])
    part.pass_seconds(1.1)
    assert standing(part.store, "a") is None


@pytest.mark.parametrize("ttl", [0, -5, 10**18])
def test_an_odd_time_to_live_is_bounded(store: StatusStore, ttl: int) -> None:
    store.write([write("a", State.DONE, ttl=ttl)])
    assert standing(store, "a") == ("done", 1, "ok")


def test_statuses_of_an_earlier_time_are_dropped(store: StatusStore) -> None:
    """Whatever they say; not those of who uses an id anew."""
    ids = [f'"at":"{number}' for number in range(203)]
    store.write([write(name, State.DONE, 7) for name in ids])
    between = AT + timedelta(microseconds=1)
    store.write([write("later", State.WAITING, at=between), write("other", State.DONE)])
    store.drop([*ids, "later", "unknown"], AT)
    assert None not in store.read(ids)
    store.drop([*ids, "later", "unknown"], between)
    assert set(store.read(ids)) == {None}
    store.write([write(ids[0], State.FAILED, 1)])
    found = [standing(store, name) for name in (ids[0], "later", "other")]
    assert found == [("failed", 1, "ok"), ("waiting", 1, "ok"), ("done", 1, "ok")]
    store.write([write("new", State.ACCEPTED)])
    store.drop(["new"], between)
    assert standing(store, "new")[0] == "accepted", "it is of who uses the id anew"
    store.drop([], between)


def test_after_everything_was_lost_statuses_are_written_again(part: Part) -> None:
    part.store.write([write("a", State.DONE)])
    part.forget()
    assert part.store.read(["a"]) == [None]
    part.store.write([write("a", State.RUNNING, 2)])
    assert standing(part.store, "a") == ("running", 2, "ok")


def test_each_channel_gets_one_hint_with_its_lines(store: StatusStore) -> None:
    hints, others = store.subscribe("mine"), store.subscribe("theirs")
    store.write(
        [
            write("a b", State.DONE, reply_to="mine"),
            write("c", State.DONE, reply_to="theirs"),
            write("d", State.FAILED, reply_to="mine"),
            write("e", State.DONE),
        ]
    )
    message = eventually(lambda: hints.receive(0.1))
    assert message is not None
    assert hinted_ids(message) == ["a b", "d"]
    assert Status.decode(message.split(b"\n")[1].removeprefix(b"d ")).state == "failed"
    assert hinted_ids(eventually(lambda: others.receive(0.1)) or b"") == ["c"]
    assert hints.receive(0.01) is None
    hints.close()
    others.close()
    store.write([write("f", State.DONE, reply_to="mine")])


def test_a_hint_comes_for_a_status_that_stands_already(store: StatusStore) -> None:
    # A resend's producer waits on another channel than the first one's.
    store.write([write("a", State.DONE, reply_to="first")])
    hints = store.subscribe("second")
    store.write([write("a", State.DONE, reply_to="second")])
    assert hinted_ids(eventually(lambda: hints.receive(0.1)) or b"") == ["a"]
    hints.close()
