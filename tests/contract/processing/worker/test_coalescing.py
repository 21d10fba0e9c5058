"""The newest request of a reference runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from feedback import Client
from feedback.contract.envelope import read
from feedback.contract.ids import time_of, uuid7
from feedback.contract.record import PARTITION
from feedback.journal.parking import ParkedRequest, park
from processing import App, Reject
from stack import Stack
from tests.support.kafka_topic import read_all
from tests.support.queue import FAR, Queue


def test_the_newest_of_a_reference_runs(queue: Queue, ran: list[Any]) -> None:
    def at(second: int) -> str:
        return f"2026-01-01T00:00:{second:02d}Z"

    queue.run(
        queue.record("a", "count", {"sku": "s"}, ce_time=at(1)),
        queue.record("b", "count", {"sku": "s"}, ce_time=at(2)),
        queue.record("x", "count", {"sku": "t"}, ce_time=at(1)),
        queue.record("free", "count", {}, ce_time=at(1)),
    )
    assert queue.rows() == {
        "a": ("superseded", "superseded"), "b": ("waiting", "coalescing"),
        "x": ("waiting", "coalescing"), "free": ("done", "ok"),
    }  # fmt: skip
    assert queue.told("a")["superseded_by"] == "b"
    queue.run(queue.record("c", "count", {"sku": "s"}, ce_time=at(3)))
    assert (queue.row("b")["state"], queue.row("b")["superseded_by"]) == ("superseded", "c")
    assert queue.told("b")["superseded_by"] == "c"
    queue.run(queue.record("late", "count", {"sku": "s"}, ce_time=at(0)))
    assert queue.row("late")["superseded_by"] == "c"
    (running,) = queue.claimed("c")
    queue.run(queue.record("d", "count", {"sku": "s"}, ce_time=at(4)))
    assert queue.row("c")["state"] == "waiting", "a running one is never touched"
    queue.run(running)
    assert (queue.row("c")["state"], queue.row("d")["state"]) == ("done", "waiting")
    queue.run(queue.record("older", "count", {"sku": "s"}, ce_time=at(2)))
    queue.again("d")
    queue.run(queue.record("oldest", "count", {"sku": "s"}, ce_time=at(1)))
    assert queue.row("oldest")["superseded_by"] == "d", "an older one never runs after it"
    assert [name for name, _ in ran] == ["free", "c", "d"]


def test_who_waits_for_the_one_that_gives_way_hears_of_it(queue: Queue) -> None:
    for number, channel in enumerate(("first", "second")):
        at = f"2026-01-01T00:00:0{number}Z"
        record = queue.record(
            channel, "count", {"sku": "s"}, ce_time=at, ce_replyto=f"hints-{channel}"
        )
        queue.run(record)
    assert queue.told("first")["state"] == "superseded"
    ended = next(way for way in reversed(queue.ways) if way[0] == "first")
    assert ended[3] == "hints-first"


def test_a_row_tells_the_reference_that_the_function_named_in_every_state(
    queue: Queue, answers: dict[str, Any]
) -> None:
    answers["d"] = ValueError("no")
    answers["f"] = Reject("no_stock")
    for number, (name, sku) in enumerate([("a", "s"), ("b", "s"), ("c", "t"), ("d", "u")]):
        at = f"2026-01-01T00:00:0{number}Z"
        queue.run(queue.record(name, "count", {"sku": sku}, ce_time=at))
    queue.again("b")
    queue.again("d")
    queue.again("d")
    queue.run(queue.record("e", "count", {"sku": "v"}, ce_reference="own"))
    queue.run(queue.record("f", "count", {"sku": "w"}))
    queue.again("f")
    assert references(queue) == {
        "a": ("superseded", "s"), "b": ("done", "s"), "c": ("waiting", "t"), "d": ("dead", "u"),
        "e": ("waiting", "own"), "f": ("rejected", "w"),
    }  # fmt: skip


def test_what_was_parked_or_follows_another_learns_its_reference_when_it_is_read(
    queue: Queue,
) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    row = ParkedRequest(
        "p", "count", "topic", 0, 900, at, None, 0, 0, None, None, b'{"sku":"s"}', b"[]"
    )
    with psycopg.connect(queue.url, autocommit=True) as connection:
        assert park(connection, [row], "parked", schema=queue.schema).runs
    queue.run(queue.record("r", "recount", {}))
    follower = min(name for name, (state, code) in queue.rows().items() if code == "follow_up")
    queue.again("p", follower)
    assert queue.rows()["p"] == ("waiting", "coalescing")
    found = references(queue)
    assert (found["p"][1], found[follower][1]) == ("s", "f")
    queue.again("p")
    assert references(queue)["p"] == ("done", "s")


def references(queue: Queue) -> dict[str, tuple[str, str | None]]:
    """State and reference of each row."""
    found = queue.query(f"SELECT id, state, reference FROM {queue.schema}.requests")
    return {name: (state, reference) for name, state, reference in found}


def test_the_window_starts_again_up_to_its_cap(queue: Queue) -> None:
    queue.run(queue.record("a", "count", {"sku": "s"}))
    wait = (queue.row("a")["due_at"] - datetime.now(UTC)).total_seconds()
    assert 15 < wait <= 20
    queue.query(
        f"UPDATE {queue.schema}.requests SET window_start = now() - interval '25 s'"
    )  # fmt: skip
    queue.run(queue.record("b", "count", {"sku": "s"}))
    wait = (queue.row("b")["due_at"] - datetime.now(UTC)).total_seconds()
    assert wait <= 5


def test_a_failed_attempt_gives_way_to_a_newer_one(queue: Queue, answers: dict[str, Any]) -> None:
    queue.run(queue.record("a", "count", {"sku": "s"}, ce_time="2026-01-01T00:00:01Z"))
    (running,) = queue.claimed("a")
    queue.run(queue.record("b", "count", {"sku": "s"}, ce_time="2026-01-01T00:00:02Z"))
    answers["a"] = ValueError("no")
    queue.run(running)
    assert queue.row("a")["superseded_by"] == "b"
    answers["b"] = ValueError("no")
    queue.again("b")
    assert (queue.row("b")["state"], queue.row("b")["used"]) == ("waiting", 1)


def test_of_equal_times_one_that_is_tried_again_gives_way_to_what_came_after_it(
    queue: Queue, answers: dict[str, Any]
) -> None:
    """It arrived first, though it is the one that is written now."""
    at = "2026-01-01T00:00:01Z"
    queue.run(queue.record("first", "count", {"sku": "s"}, ce_time=at))
    (running,) = queue.claimed("first")
    queue.run(queue.record("second", "count", {"sku": "s"}, ce_time=at))
    answers["first"] = ValueError("no")
    queue.run(running)
    assert queue.row("second")["state"] == "waiting"
    assert (queue.row("first")["state"], queue.row("first")["superseded_by"]) == (
        "superseded", "second",
    )  # fmt: skip
    (running,) = queue.claimed("second")
    answers["second"] = ValueError("no")
    queue.run(running)
    assert queue.row("second")["state"] == "waiting", "it is no older than itself"
    queue.run(queue.record("third", "count", {"sku": "s"}, ce_time=at))
    assert queue.row("second")["superseded_by"] == "third"


def test_a_time_of_its_own_never_coalesces(queue: Queue) -> None:
    queue.run(*(queue.record(n, "count", {"sku": "s"}, ce_notbefore=FAR) for n in ("a", "b")))
    assert queue.rows() == {"a": ("waiting", "delayed"), "b": ("waiting", "delayed")}


def test_a_producer_with_a_clock_ahead_does_not_silence_its_reference(queue: Queue) -> None:
    queue.run(queue.record("ahead", "count", {"sku": "s"}, ce_time="2999-01-01T00:00:00Z"))
    queue.again("ahead")
    queue.run(queue.record("next", "count", {"sku": "s"}, ce_time="2998-01-01T00:00:00Z"))
    assert queue.row("next")["state"] == "waiting"


def test_of_one_millisecond_the_last_submitted_wins_whatever_order_they_come_in(
    queue: Queue,
) -> None:
    """Their ids are made in the order of the calls; partitions are read in any."""
    made = [str(uuid7()) for _ in range(5)]
    last = time_of(made[-1])
    assert last is not None
    milliseconds = int(last * 1000) + 1
    sent = [queue.record(name, "count", {"sku": "s"}) for name in made]
    sent = [(*record[:3], milliseconds, *record[4:]) for record in sent]
    for number in (4, 1, 3, 0, 2):
        queue.run(sent[number])
    states = {name: queue.row(name)["state"] for name in made}
    assert states == dict.fromkeys(made[:4], "superseded") | {made[4]: "waiting"}


@pytest.mark.parametrize("ids", ["its own", "made"])
def test_of_one_client_the_last_submitted_wins_over_several_partitions(
    queue: Queue, stack: Stack, topic: Callable[..., str], prefix: str, ids: str
) -> None:
    """Also of one millisecond, whatever ids they have and in which order partitions are read."""
    name = topic(partitions=3)
    names: list[str] = []
    with Client(stack.kafka, stack.redis, name, prefix=prefix, hints=False) as client:
        for number in range(50):
            own = f"order-{number}" if ids == "its own" else None
            names.append(client.submit("count", {"sku": "s"}, request_id=own))
    records = {read(record).id: record for record in read_all(stack.kafka, name)}
    times = [read(records[request_id]).exact_time for request_id in names]
    assert all(before < after for before, after in itertools.pairwise(times))
    assert len({record[PARTITION] for record in records.values()}) == 3
    for request_id in reversed(names):
        queue.run(records[request_id])
    assert {state for request_id in names[:-1] for state in queue.rows()[request_id]} == {
        "superseded"
    }
    assert queue.row(names[-1])["state"] == "waiting"


def test_what_a_lost_race_said_of_the_winner_is_forgotten(
    queue: Queue, answers: dict[str, Any]
) -> None:
    """The newer one is cancelled before the chunk is done again."""
    schema = queue.schema
    queue.run(queue.record("newer", "count", {"sku": "s"}, ce_time="2026-01-01T00:00:09Z"))
    queue.query(f"CREATE SEQUENCE {schema}.once")
    queue.query(
        f"CREATE FUNCTION {schema}.lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" IF new.id = 'b' AND nextval('{schema}.once') = 1 THEN"
        " RAISE EXCEPTION 'a race' USING ERRCODE = '40001'; END IF; RETURN new; END $$"
    )
    queue.query(
        f"CREATE TRIGGER lose BEFORE INSERT ON {schema}.requests"
        f" FOR EACH ROW EXECUTE FUNCTION {schema}.lose()"
    )
    entries: list[str] = []

    def cancel_the_newer_one_at_the_second_entry() -> None:
        entries.append("b")
        if len(entries) == 2:
            queue.query(
                f"UPDATE {schema}.requests SET state = 'cancelled', code = 'cancelled',"
                " due_at = NULL, finished_at = now(), run = run + 1 WHERE id = 'newer'"
            )

    answers["b"] = cancel_the_newer_one_at_the_second_entry
    queue.run(
        queue.record("b", "once", {}),
        queue.record("a", "count", {"sku": "s"}, ce_time="2026-01-01T00:00:01Z"),
    )
    assert len(entries) == 2, "there was no race"
    assert queue.rows()["a"] == ("waiting", "coalescing")
    assert queue.row("a")["superseded_by"] is None
    assert "superseded_by" not in queue.told("a")


def test_a_resend_to_who_does_not_know_its_type_leaves_a_request_its_reference(
    queue: Queue, answers: dict[str, Any], ran: list[Any]
) -> None:
    answers["a"] = ValueError("no")
    first = queue.record("a", "tally", {"sku": "s"}, ce_time="2026-01-01T00:00:01Z")
    queue.run(first)
    queue.again("a")
    assert queue.rows()["a"] == ("failed", "handler_error")
    answers.clear()
    ran.clear()
    older = App()
    older.handler("other")(lambda payload: None)
    older.start_worker()
    queue.app, known = older, queue.app
    stranger = queue.another(queue.url)
    queue.app = known
    known_executor, queue.executor = queue.executor, stranger
    queue.run(queue.record("a", "tally", {"sku": "s"}, ce_time="2026-01-01T00:00:01Z"))
    assert queue.rows()["a"] == ("waiting", "unknown_type")
    stranger.close()
    queue.executor = known_executor
    queue.run(queue.record("b", "tally", {"sku": "s"}, ce_time="2026-01-01T00:00:02Z"))
    assert queue.row("a")["superseded_by"] == "b"
    queue.again("b")
    assert [name for name, _ in ran] == ["b"]
