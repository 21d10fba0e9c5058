"""Another payload under a known id never runs, also where its message is parked."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from feedback.contract.record import Record, read_again
from feedback.operations.dead_letter_actions import resend_letter
from feedback.operations.dead_message import DeadMessage
from feedback.operations.request_actions import By
from feedback.status.status import Status
from processing import App
from stack import Stack
from tests.support.executor import Bench
from tests.support.parked import park_records
from tests.support.queue import INSTANCE, Queue

COMPARABLE = {"once": True, "pay": True, "own": False}


def parked(queue: Bench, *records: Record, **more: Any) -> list[Status]:
    """What is told of them."""
    given = {"comparable": COMPARABLE, **more}
    told = park_records(queue.url, queue.schema, records, **given)
    return [Status.decode(write.value) for write in told]


@pytest.mark.parametrize("lost", [(), [(1, 1)]], ids=["unstarted", "suspect"])
@pytest.mark.parametrize("stands", ["failed", "waiting", "done"])
def test_it_is_a_dead_letter_and_the_stored_request_stays_as_it_is(
    queue: Queue,
    answers: dict[str, Any],
    ran: list[Any],
    stands: str,
    lost: list[tuple[int, int]],
) -> None:
    first = queue.record("x", "once", {"cents": 10})
    if stands == "waiting":
        parked(queue, first)
    else:
        answers["x"] = ValueError("not now") if stands == "failed" else None
        queue.run(first)
    before = queue.query(f"SELECT * FROM {queue.schema}.requests")
    other = queue.record("x", "once", {"cents": 20})

    [told] = parked(queue, other, lost=lost)

    assert queue.letters() == [("conflict", "x")]
    assert told.state == stands
    assert queue.query(f"SELECT * FROM {queue.schema}.requests") == before
    [again] = parked(queue, queue.record("x", "once", b'{ "cents": 10 }'))
    assert (again.state, queue.letters()) == (
        "waiting" if stands == "failed" else stands, [("conflict", "x")],
    )  # fmt: skip


def test_who_sends_again_what_is_parked_hears_when_it_runs(queue: Queue) -> None:
    [told] = parked(queue, queue.record("x", "once", {"cents": 10}))
    queue.run(queue.record("x", "once", {"cents": 10}))
    assert queue.statuses[-1]["code"] == "parked"
    again = datetime.fromisoformat(queue.statuses[-1]["retry_at"])
    assert told.retry_at is not None
    assert abs(again - told.retry_at) < timedelta(seconds=60)


def test_of_two_messages_of_one_id_that_are_parked_together_the_second_is_compared(
    queue: Queue,
) -> None:
    first, same = (queue.record("x", "once", {"cents": 10}) for _ in range(2))
    other = queue.record("x", "once", {"cents": 20})
    told = parked(queue, first, same, other)
    assert {status.state for status in told} == {"waiting"}
    assert queue.letters() == [("conflict", "x")]
    assert queue.query(f"SELECT resends FROM {queue.schema}.requests") == [(1,)]


@pytest.mark.parametrize("who", ["worker", "parked", "parked, and nobody knows its type"])
def test_a_message_that_is_read_again_is_answered_by_what_a_later_copy_made(
    queue: Queue, answers: dict[str, Any], ran: list[Any], who: str
) -> None:
    """Nobody has sent it again: it does not run, and counts as no resend."""
    answers["x"] = ValueError("not now")
    first, copy, third = (queue.record("x", "once", {"cents": 10}) for _ in range(3))
    queue.run(first)
    queue.run(copy)
    entries = len(ran)
    before = queue.query(f"SELECT * FROM {queue.schema}.requests")

    if who == "worker":
        queue.run(read_again(first))
    else:
        comparable = COMPARABLE if who == "parked" else {}
        [told] = parked(queue, read_again(first), comparable=comparable)
        assert (told.state, told.code) == ("failed", "handler_error")

    assert queue.query(f"SELECT * FROM {queue.schema}.requests") == before
    assert len(ran) == entries
    [resent] = parked(queue, read_again(third))
    assert resent.state == "waiting"


def test_another_type_is_a_dead_letter(queue: Queue, answers: dict[str, Any]) -> None:
    answers["x"] = ValueError("not now")
    queue.run(queue.record("x", "once", {"cents": 10}))
    parked(queue, queue.record("x", "pay", {"cents": 10}))
    assert queue.letters() == [("conflict", "x")]
    assert queue.rows() == {"x": ("failed", "handler_error")}


def own_app(failing: set[str], ran: list[Any]) -> App:
    app = App()

    @app.handler("own", fingerprint=lambda payload: payload["order"])
    def own(payload: Any) -> None:
        if failing:
            raise ValueError("not now")
        ran.append(payload)

    return app


def test_what_only_its_type_can_compare_is_told_to_come_again(stack: Stack, schema: str) -> None:
    """Waiting as if it were the same, the stored request would run though nobody sent it again."""
    failing, ran = {"x"}, list[Any]()
    bench = Bench(own_app(failing, ran), stack.database, schema, instance=INSTANCE)
    bench.run(bench.record("x", "own", {"order": "A", "n": 1}))
    before = bench.query(f"SELECT * FROM {schema}.requests")

    [_, told] = parked(bench, bench.record("x", "own", {"order": "A", "n": 2}))

    assert (told.state, told.code) == ("failed", "database_unavailable")
    assert bench.query(f"SELECT * FROM {schema}.requests") == before
    # To the letter the same it is the same, whatever its fingerprint is made of.
    [again] = parked(bench, bench.record("x", "own", {"order": "A", "n": 1}))
    assert (again.state, again.run) == ("waiting", 2)
    # It waits, and answers whatever nobody can compare with it.
    [stays] = parked(bench, bench.record("x", "own", {"order": "B", "n": 1}))
    assert (stays.state, bench.letters(), ran) == ("waiting", [], [])
    bench.executor.close()
    bench.app.stop_worker()


@pytest.mark.parametrize("lost", [(), [(1, 1)]], ids=["unstarted", "suspect"])
def test_a_done_row_of_an_older_version_does_not_say_what_can_be_compared(
    stack: Stack, schema: str, lost: list[tuple[int, int]]
) -> None:
    bench = Bench(own_app(set(), []), stack.database, schema, instance=INSTANCE)
    bench.run(bench.record("x", "own", {"order": "A", "n": 1}))
    # As such a version left it.
    bench.query(f"UPDATE {schema}.requests SET own_fingerprint = false")
    [told] = parked(bench, bench.record("x", "own", {"order": "A", "n": 2}), lost=lost)
    assert (told.state, told.fingerprint, bench.letters()) == ("done", None, [])
    bench.executor.close()
    bench.app.stop_worker()


def test_who_does_not_know_its_type_compares_what_its_row_has(
    queue: Queue, answers: dict[str, Any]
) -> None:
    """A worker too: else the stored request waited for one that knows it, and ran."""
    answers["x"] = ValueError("not now")
    queue.run(queue.record("x", "once", {"cents": 10}))
    before = queue.query(f"SELECT * FROM {queue.schema}.requests")
    app = App()
    app.handler("other")(lambda payload: None)
    ignorant = Queue(app, queue.url, queue.schema, instance=INSTANCE)
    ignorant.offset = 100
    ignorant.run(ignorant.record("x", "once", {"cents": 20}))
    assert ignorant.letters() == [("conflict", "x")]
    parked(queue, queue.record("x", "once", {"cents": 30}), comparable={})
    assert queue.letters() == [("conflict", "x"), ("conflict", "x")]
    assert queue.query(f"SELECT * FROM {queue.schema}.requests") == before
    ignorant.run(ignorant.record("x", "once", {"cents": 10}))
    assert queue.rows() == {"x": ("waiting", "unknown_type")}
    ignorant.executor.close()


@pytest.mark.parametrize("by", ["worker", "maintenance"])
@pytest.mark.parametrize("stands", ["waiting", "dead"])
def test_a_conflict_of_a_type_that_nobody_here_knows_is_kept(
    stack: Stack, schema: str, stands: str, by: str
) -> None:
    """Once somebody knows it a retry is answered, where its own fingerprint is the same."""
    app, ran = App(), list[Any]()
    app.handler("other")(lambda payload: None)
    ignorant = Queue(app, stack.database, schema, instance=INSTANCE)
    ignorant.run(ignorant.record("x", "own", {"order": "A", "n": 1}))
    assert ignorant.rows() == {"x": ("waiting", "unknown_type")}
    if stands == "dead":
        ignorant.query(f"UPDATE {schema}.requests SET state = 'dead', due_at = NULL")
    before = ignorant.query(f"SELECT * FROM {schema}.requests")

    def come(payload: Any) -> None:
        record = ignorant.record("x", "own", payload)
        if by == "worker":
            ignorant.run(record)
        else:
            parked(ignorant, record, comparable={"other": True})

    come({"order": "A", "n": 2})
    assert ignorant.letters() == [("conflict", "x")]
    [(number, why)] = ignorant.query(f"SELECT id, detail FROM {schema}.dead_letters")
    assert "no version here knows the type 'own'" in why
    assert ignorant.query(f"SELECT * FROM {schema}.requests") == before
    come(b'{ "n": 1, "order": "A" }')
    assert ignorant.letters() == [("conflict", "x")], "written anew it is the same"
    assert ignorant.query(f"SELECT state, resends FROM {schema}.requests") == [(stands, 1)]
    ignorant.executor.close()

    bench = Bench(own_app(set(), ran), stack.database, schema, instance=INSTANCE)
    bench.offset = ignorant.offset
    sent: list[DeadMessage] = []
    with psycopg.connect(stack.database, autocommit=True) as connection:
        assert resend_letter(connection, number, sent.append, By("test"), schema=schema) is None
    bench.run(bench.record("x", "own", sent[0].value))
    assert (bench.letters(), ran) == ([("conflict", "x")], [])
    assert bench.query(f"SELECT state, resends FROM {schema}.requests") == [(stands, 2)]
    bench.run(bench.record("x", "own", {"order": "B", "n": 1}))
    assert bench.letters() == [("conflict", "x"), ("conflict", "x")]
    assert "no version" not in bench.query(f"SELECT detail FROM {schema}.dead_letters")[-1][0]
    bench.executor.close()
    bench.app.stop_worker()


def test_a_failed_row_in_a_foreign_form_harms_its_own_message_alone(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    parked(queue, queue.record("odd", "once", {"cents": 10}))
    queue.query(
        f"UPDATE {queue.schema}.requests SET state = 'failed', due_at = NULL, headers = '7'"
    )
    names = ["a", "odd", "b"]
    told = parked(queue, *(queue.record(name, "once", {"cents": 1}) for name in names))
    assert {status.id: (status.state, status.code) for status in told} == {
        "a": ("waiting", "parked"), "b": ("waiting", "parked"),
        "odd": ("failed", "database_unavailable"),
    }  # fmt: skip
    assert (queue.letters(), queue.rows()["odd"][0]) == ([], "failed")
    # Where logs go, tests before this one may have said.
    assert "headers in no form that can be read" in caplog.text
    queue.run(queue.record("odd", "once", {"cents": 1}), queue.record("c", "pay", {}))
    assert (queue.letters(), queue.rows()["c"][0]) == ([], "done")
