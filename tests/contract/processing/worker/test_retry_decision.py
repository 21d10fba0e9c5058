"""What waits after an attempt, or before its first one, and what is dead."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from feedback.contract.states import DATABASE_UNAVAILABLE
from feedback.status.memory_store import MemoryStatusStore
from feedback.status.status import StatusWrite
from processing import Reject, Retry
from processing.ipc.frames import Suspect
from processing.maintenance.unstarted import refusals
from tests.support.queue import FAR, INSTANCE, Queue, queue_app


def test_attempts_are_used_up_and_the_request_is_dead(
    queue: Queue, answers: dict[str, Any], ran: list[Any]
) -> None:
    answers["a"] = ValueError("no")
    queue.run(queue.record("a", "pay", {}), queue.record("b", "pay", {}))
    assert queue.rows() == {"a": ("waiting", "handler_error"), "b": ("done", "ok")}
    assert queue.told("a")["attempt"] == 1
    assert queue.row("a")["due_at"] > datetime.now(UTC)
    queue.again("a")
    assert queue.told("a")["attempt"] == 2
    queue.again("a")
    row = queue.row("a")
    assert (row["state"], row["code"], row["attempt"], row["run"]) == (
        *("dead", "handler_error"), 3, 3
    )  # fmt: skip
    assert (row["due_at"], row["payload"]) == (None, b"{}")
    assert queue.timeline("a") == [(n, "handler_error") for n in (1, 2, 3)]
    # An attempt that fails among others is undone and entered once more by itself.
    assert (list(dict.fromkeys(ran)), queue.effects()) == (
        [("a", 1), ("b", 1), ("a", 2), ("a", 3)],
        ["b"],
    )
    assert "ValueError" in queue.told("a")["error"]
    queue.run(queue.record("a", "pay", {}))
    assert queue.told("a")["state"] == "dead", "a resend of a dead one is answered"


def test_a_later_attempt_succeeds(queue: Queue, answers: dict[str, Any], ran: list[Any]) -> None:
    answers["a"] = OSError("away")
    queue.run(queue.record("a", "picky", {}))
    wait = (queue.row("a")["due_at"] - datetime.now(UTC)).total_seconds()
    assert 45 < wait <= 50
    del answers["a"]
    queue.again("a")
    row = queue.row("a")
    assert (row["state"], row["attempt"], row["run"], row["payload"]) == ("done", 2, 2, None)
    assert queue.told("a")["attempt"] == 2


@pytest.mark.parametrize("then", ["done", "killed"])
def test_the_timeline_of_pure_computation_ends_with_its_row(
    queue: Queue, answers: dict[str, Any], then: str
) -> None:
    """It is computed again where it is sent again, and its runs are counted from 1."""
    errors = f"SELECT error FROM {queue.schema}.attempts WHERE request_id = 'a' ORDER BY run"
    answers["a"] = OSError("first life")
    queue.run(queue.record("a", "pure", {}))
    assert "first life" in queue.query(errors)[0][0]
    del answers["a"]
    died = Suspect(None, (), (), 1) if then == "killed" else None
    queue.run(*queue.claimed("a"), suspect=died)
    assert (queue.told("a")["state"], queue.rows(), queue.query(errors)) == ("done", {}, [])
    answers["a"] = OSError("second life")
    queue.run(queue.record("a", "pure", {}))
    queue.again("a")
    assert queue.rows() == {"a": ("dead", "handler_error")}
    assert ["second life" in error for (error,) in queue.query(errors)] == [True, True]


def test_exceptions_that_are_not_worth_it_end_it_at_once(
    queue: Queue, answers: dict[str, Any]
) -> None:
    answers["a"] = ValueError("no")
    queue.run(queue.record("a", "picky", {}))
    assert queue.rows() == {"a": ("dead", "handler_error")}


def test_the_handler_says_when_and_whether_it_counts(queue: Queue, answers: dict[str, Any]) -> None:
    at = datetime(2030, 5, 1, tzinfo=UTC)
    answers["a"] = Retry(at=at, reason="closed", counts=False)
    answers["once"] = Retry(after=10, counts=False)
    answers["plain"] = Retry(after=10)
    answers["no"] = Reject("no_funds")
    queue.run(
        queue.record("a", "pay", {}), queue.record("once", "once", {}),
        queue.record("plain", "once", {}), queue.record("no", "pay", {}),
    )  # fmt: skip
    assert queue.rows() == {
        "a": ("waiting", "retry"), "once": ("waiting", "retry"),
        "plain": ("waiting", "retry"), "no": ("rejected", "no_funds"),
    }  # fmt: skip
    row = queue.row("a")
    assert (row["due_at"], row["attempt"], row["used"]) == (at, 1, 0)
    assert queue.told("a")["reason"] == "closed"
    queue.again("a")
    queue.again("a")
    assert (queue.row("a")["attempt"], queue.row("a")["run"]) == (1, 3)


def test_what_waits_says_so_whatever_was_told_of_a_copy_before_its_row_was_written(
    queue: Queue, answers: dict[str, Any]
) -> None:
    """An instance without the database refuses it after its handler has ended and before COMMIT."""
    store = MemoryStatusStore()
    copy = queue.record("a", "pay", {})

    def refuse_copy() -> None:
        store.write(refusals([copy], DATABASE_UNAVAILABLE, datetime.now(UTC), 60).writes)

    answers["a"] = Retry(after=100)
    answers["b"] = refuse_copy
    queue.run(queue.record("a", "pay", {}), queue.record("b", "pay", {}))
    assert store_says(store) == ("failed", DATABASE_UNAVAILABLE)
    store.write([StatusWrite("a", orjson.dumps(queue.told("a")), 60)])
    assert store_says(store) == ("waiting", "retry")


def store_says(store: MemoryStatusStore) -> tuple[str, str]:
    [status] = store.read(["a"])
    assert status is not None
    return status.state, status.code


def test_an_unknown_type_waits_for_a_newer_version(queue: Queue, ran: list[Any]) -> None:
    queue.run(queue.record("a", "novel", {"n": 1}))
    row = queue.row("a")
    assert (row["state"], row["code"], row["fingerprint"]) == ("waiting", "unknown_type", None)
    for _ in range(8):
        queue.again("a")
    assert queue.row("a")["state"] == "waiting"

    queue.run(queue.record("b", "strange", {}))
    for _ in range(9):
        queue.again("b")
    assert queue.row("b")["state"] == "dead"
    newer = queue_app(queue.schema, {"novel": True}, ran)
    newer.start_worker()
    queue.app, older = newer, queue.executor
    queue.executor = queue.another(queue.url, instance=INSTANCE)
    older.close()
    queue.again("a")
    row = queue.row("a")
    assert (row["state"], row["attempt"], ran) == ("done", 1, [("a", 1)])
    assert row["fingerprint"] is not None


def version(queue: Queue, ran: list[Any], answers: dict[str, Any]) -> None:
    """The executor's app knows what `queue_app` makes of these answers."""
    app = queue_app(queue.schema, answers, ran)
    app.start_worker()
    queue.app, older = app, queue.executor
    queue.executor = queue.another(queue.url, instance=INSTANCE)
    older.close()


def test_a_handler_has_all_its_attempts_whatever_nobody_knew_before_or_between(
    queue: Queue, ran: list[Any]
) -> None:
    """As in a rolling deploy: the row goes back and forth between versions."""
    failing = {"novel": True, "a": ValueError("no")}
    queue.run(queue.record("a", "novel", {}))
    for _ in range(7):
        queue.again("a")
    assert (queue.row("a")["attempt"], queue.row("a")["used"]) == (8, 0)

    version(queue, ran, failing)
    queue.again("a")
    row = queue.row("a")
    assert (row["state"], row["code"], row["attempt"]) == ("waiting", "handler_error", 1)
    version(queue, ran, {})
    for _ in range(9):
        queue.again("a")
    row = queue.row("a")
    assert (row["state"], row["code"], row["used"]) == ("waiting", "unknown_type", 1)
    version(queue, ran, failing)
    queue.again("a")
    assert (queue.row("a")["state"], set(ran)) == ("dead", {("a", 1), ("a", 2)})


def test_pure_computation_has_a_row_only_while_it_waits_or_is_dead(
    queue: Queue, answers: dict[str, Any], ran: list[Any]
) -> None:
    queue.run(queue.record("ok", "pure", {}))
    assert queue.rows() == {}
    answers["a"] = ValueError("no")
    queue.run(queue.record("a", "pure", {}))
    assert queue.rows() == {"a": ("waiting", "handler_error")}
    queue.run(queue.record("a", "pure", {}))
    assert ran == [("ok", 1), ("a", 1)], "the copy is answered"
    del answers["a"]
    queue.again("a")
    assert queue.rows() == {}
    assert (queue.told("a")["state"], queue.told("a")["result"]) == ("done", "computed")
    assert (queue.told("a")["attempt"], ran[-1]) == (2, ("a", 2))
    answers["b"] = ValueError("no")
    queue.run(queue.record("b", "pure", {}))
    queue.again("b")
    assert queue.rows() == {"b": ("dead", "handler_error")}


def test_external_effects_wait_only_where_nothing_happened(
    queue: Queue, answers: dict[str, Any], ran: list[Any]
) -> None:
    answers["a"], answers["b"] = Retry(after=9), ValueError("half way")
    queue.run(queue.record("a", "call", {}), queue.record("b", "call", {}))
    assert queue.rows() == {"a": ("waiting", "retry"), "b": ("in_doubt", "handler_error")}
    row = queue.row("a")
    assert (row["token"], row["lease_until"], row["used"]) == (None, None, 1)
    queue.again("a")
    assert queue.rows()["a"] == ("dead", "retry")
    del answers["a"]
    queue.run(queue.record("c", "call", {}, ce_notbefore=FAR))
    queue.again("c")
    row = queue.row("c")
    assert (row["state"], row["run"], row["attempt"]) == ("done", 1, 1)


def test_it_says_when_the_next_one_is_due(queue: Queue, answers: dict[str, Any]) -> None:
    assert queue.run(queue.record("a", "once", {})).due_in is None
    answers["b"] = Retry(after=7, counts=False)
    due_in = queue.run(queue.record("b", "once", {}), queue.record("c", "order", {})).due_in
    assert due_in == pytest.approx(0, abs=0.5)
    due_in = queue.run(queue.record("b2", "once", {}, ce_notbefore=FAR)).due_in
    assert due_in is not None
    assert due_in > 1e6
