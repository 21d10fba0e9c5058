"""The worker's clock is minutes from the database's: what waits is due by that one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine

from feedback.contract import ids
from feedback.contract.times import moment
from feedback.status.status import DEFAULT_TTL
from processing import Retry
from tests.support.queue import Queue

MINUTES = timedelta(minutes=7)

Wait = Callable[[str, float], None]


@pytest.fixture(params=[-MINUTES, MINUTES], ids=["behind", "ahead"], autouse=True)
def apart(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[timedelta]:
    """All of this process is that far from the server."""
    monkeypatch.setattr(ids, "_last", ids._last)  # later tests' ids are of their time again
    with time_machine.travel(request.param):
        yield request.param


@pytest.fixture
def waits(queue: Queue) -> Wait:
    """Asserts that a row waits now, and at most that many seconds, by the clock that says so.

    However long the test itself takes: a row became due after the test began, and is due no later
    than that pause from now.
    """
    queue.executor.connect()
    [(begun,)] = queue.query("SELECT clock_timestamp()")

    def check(id: str, most: float) -> None:
        [(since, left)] = queue.query(
            "SELECT extract(epoch FROM due_at - %s)::float8,"
            " extract(epoch FROM due_at - clock_timestamp())::float8"
            f" FROM {queue.schema}.requests WHERE id = %s AND state = 'waiting'",
            begun, id,
        )  # fmt: skip
        assert since > 0
        assert left <= most

    return check


def test_the_next_attempt_comes_after_its_pause(
    queue: Queue, waits: Wait, answers: dict[str, Any]
) -> None:
    answers["a"] = OSError("away")
    report = queue.run(queue.record("a", "picky", {}))
    waits("a", 55)
    assert report.due_in is not None
    assert 0 < report.due_in <= 50, "its maintenance process looks when it is due"
    lives = {name: ttl for name, ttl, *_ in queue.ways}
    assert DEFAULT_TTL < lives["a"] <= DEFAULT_TTL + 50, "its status, until it is due and then"
    queue.again("a")
    waits("a", 105)


@pytest.mark.usefixtures("waits")
def test_what_a_resend_is_told_of_a_row_lives_until_that_is_due(
    queue: Queue, answers: dict[str, Any]
) -> None:
    answers["a"] = OSError("away")
    queue.run(queue.record("a", "picky", {}))
    queue.ways.clear()
    queue.run(queue.record("a", "picky", {}))
    assert queue.told("a")["state"] == "waiting"
    [ttl] = [ttl for name, ttl, *_ in queue.ways if name == "a"]
    assert DEFAULT_TTL < ttl <= DEFAULT_TTL + 50


@pytest.mark.parametrize("kind", ["pay", "pure", "call"])
def test_a_retry_that_does_not_count_waits_all_the_same(
    queue: Queue, waits: Wait, answers: dict[str, Any], kind: str
) -> None:
    answers["a"] = Retry(after=50, counts=False)
    queue.run(queue.record("a", kind, {}))
    waits("a", 55)
    queue.again("a")
    waits("a", 55)


def test_a_type_that_nobody_knows_is_tried_again_after_its_pause(queue: Queue, waits: Wait) -> None:
    queue.run(queue.record("a", "novel", {}))
    waits("a", 15)


def test_a_window_holds(queue: Queue, waits: Wait) -> None:
    queue.run(queue.record("a", "count", {"sku": "s"}))
    waits("a", 25)
    queue.run(queue.record("b", "count", {"sku": "s"}))
    assert queue.row("a")["state"] == "superseded"
    waits("b", 25)


@pytest.mark.usefixtures("waits")
def test_the_newer_one_is_the_one_that_was_sent_last(queue: Queue, apart: timedelta) -> None:
    """Though it is still to come by the worker's clock, and is read first."""
    older, newer = ((_by_database(apart) - timedelta(seconds=s)).isoformat() for s in (60, 10))
    queue.run(queue.record("newer", "count", {"sku": "s"}, ce_time=newer))
    queue.run(queue.record("older", "count", {"sku": "s"}, ce_time=older))
    assert queue.row("older")["superseded_by"] == "newer"
    assert queue.row("newer")["state"] == "waiting"


@pytest.mark.usefixtures("waits")
def test_what_is_still_to_come_counts_as_now(queue: Queue, apart: timedelta) -> None:
    """By the clock that says what is due, whatever the worker's says."""
    early = (_by_database(apart) + timedelta(seconds=60)).isoformat()
    queue.run(queue.record("early", "count", {"sku": "s"}, ce_time=early))
    late = _by_database(apart) + timedelta(seconds=1)
    queue.run(queue.record("last", "count", {"sku": "s"}, ce_time=late.isoformat()))
    assert queue.row("early")["superseded_by"] == "last"


def test_a_window_that_another_instance_has_begun_is_cut_at_its_cap(
    queue: Queue, waits: Wait, apart: timedelta
) -> None:
    """That one's clock is the database's."""
    with time_machine.travel(-apart):
        queue.run(queue.record("a", "count", {"sku": "s"}))
    queue.query(
        f"UPDATE {queue.schema}.requests SET window_start = now() - interval '25 s' WHERE id = 'a'"
    )
    queue.run(queue.record("b", "count", {"sku": "s"}))
    waits("b", 15)


def test_a_follow_up_is_due_at_once(queue: Queue, waits: Wait, ran: list[Any]) -> None:
    queue.run(queue.record("a", "order", {}))
    [(name, new)] = queue.query(
        f"SELECT id, not_before <= produced_at FROM {queue.schema}.requests"
        " WHERE code = 'follow_up' AND id <> 'named'"
    )
    waits(name, 5)
    assert new, "it asks for no time of its own"


def test_a_delay_is_over_by_the_clock_that_says_what_is_due(
    queue: Queue, waits: Wait, ran: list[Any], apart: timedelta
) -> None:
    soon, past = (_by_database(apart) + timedelta(seconds=s) for s in (60, -60))
    queue.run(
        queue.record("a", "once", {}, ce_notbefore=soon.isoformat()),
        queue.record("b", "once", {}, ce_notbefore=past.isoformat()),
        queue.record("c", "novel", {}, ce_notbefore=soon.isoformat()),
    )
    waits("a", 65)
    waits("c", 65)
    assert ran == [("b", 1)]
    assert queue.row("c")["code"] == "delayed"


def test_times_of_ends_are_the_workers(queue: Queue, apart: timedelta) -> None:
    """As all else that this machine says of it, which is told by them what came first."""
    before = datetime.now(UTC)
    queue.run(queue.record("a", "once", {}), queue.record("b", "count", {"sku": "s"}))
    queue.run(queue.record("c", "count", {"sku": "s"}))
    for name in "abc":
        told = datetime.fromisoformat(queue.told(name)["at"])
        assert before <= told <= datetime.now(UTC)
    for name in "ab":
        assert before <= queue.row(name)["finished_at"] <= datetime.now(UTC)


def test_a_clock_that_is_set_while_a_worker_runs_moves_nothing(
    queue: Queue, waits: Wait, answers: dict[str, Any], apart: timedelta
) -> None:
    answers["a"] = answers["b"] = OSError("away")
    queue.run(queue.record("a", "picky", {}))
    with time_machine.travel(2 * apart):
        queue.run(queue.record("b", "picky", {}))
    waits("b", 55)


def _by_database(apart: timedelta) -> datetime:
    """What time it is there, near enough."""
    return moment((datetime.now(UTC) - apart).timestamp())
