"""Operators and the executor on the same requests, on real PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import psycopg
import pytest

from feedback.contract.record import Record
from feedback.journal.claims import ClaimRequest, claim
from feedback.operations.dead_letter_actions import retry_letter
from feedback.operations.request_actions import By, Moved, TransitionOutcome, cancel, resolve, retry
from feedback.operations.request_reads import get_statuses
from processing import App, Request
from stack import Stack
from tests.support.executor import Bench
from tests.support.journal import Journal
from tests.support.moves import forbidden_moves, watch_moves

BY = By("ann")
INSTANCE = "local"


class Scene(Bench):
    """An executor, a maintenance process that claims when it is told to, and an operator."""

    def __init__(self, stack: Stack, schema: str) -> None:
        self.wrong: dict[str, BaseException] = {}
        self.entered = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()
        self.order = 0
        super().__init__(self._app(), stack.database, schema, instance=INSTANCE)
        self.operator = psycopg.connect(stack.database, autocommit=True)

    def _app(self) -> App:
        app = App()

        def act(request: Request[Any]) -> None:
            self.entered.set()
            assert self.go_on.wait(60)
            if (error := self.wrong.get(request.id)) is not None:
                raise error

        @app.handler("pay", retries=1)
        def pay(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> str:
            tx.execute(f"INSERT INTO {self.schema}.effects VALUES (%s)", (request.id,))
            act(request)
            return "paid"

        @app.handler("once")
        def once(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> str:
            return pay(payload, tx, request)

        @app.handler("call", effect="external")
        def call(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> str:
            return pay(payload, tx, request)

        @app.handler("count", coalesce=lambda p: p["sku"], retries=1)
        def count(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> str:
            return pay(payload, tx, request)

        return app

    def claimed(self) -> list[Record]:
        self.order += 1
        haul = claim(self.operator, INSTANCE, ClaimRequest(self.order, 100), schema=self.schema)
        return [row.record for row in haul.rows]

    def run_due(self) -> None:
        self.run(*self.claimed())

    def kill(self, id: str) -> None:
        """Uses up its attempts."""
        self.wrong[id] = ValueError("no")
        while self.rows()[id][0] == "waiting":
            self.due_now()
            self.run_due()
        del self.wrong[id]

    def due_now(self) -> None:
        self.query(f"UPDATE {self.schema}.requests SET due_at = now() WHERE state = 'waiting'")

    def retry(self, *ids: str) -> TransitionOutcome:
        return retry(self.operator, ids, BY, schema=self.schema)

    def count(self, table: str) -> int:
        return int(self.query(f"SELECT count(*) FROM {self.schema}.{table}")[0][0])


@pytest.fixture
def scene(stack: Stack, schema: str) -> Iterator[Scene]:
    with psycopg.connect(stack.database, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {schema}.effects (id text)".encode())
    watch_moves(stack.database, schema)
    made = Scene(stack, schema)
    yield made
    made.executor.close()
    made.app.stop_worker()
    made.operator.close()
    assert forbidden_moves(stack.database, schema) == []


def test_a_retried_dead_request_runs_with_all_its_attempts(scene: Scene) -> None:
    scene.wrong["a"] = ValueError("no")
    scene.run(scene.record("a", "pay", {}))
    scene.kill("a")
    assert scene.rows() == {"a": ("dead", "handler_error")}

    (moved,) = scene.retry("a").moved
    scene.wrong["a"] = ValueError("once more")
    scene.run_due()
    assert scene.rows() == {"a": ("waiting", "handler_error")}, "attempt 1 of 2"
    del scene.wrong["a"]
    scene.due_now()
    scene.run_due()

    assert scene.rows() == {"a": ("done", "ok")}
    assert scene.effects() == ["a"]
    assert scene.count("attempts") == 3
    told = [s["v"] for s in scene.statuses if s["id"] == "a"]
    assert told == sorted(told)
    assert moved.status().value[6:12].decode() == f"{moved.run:05d}3"


def test_what_waits_stands_so_since_its_last_run_or_its_retry(scene: Scene) -> None:
    """Not since its row was made: the second attempt would be older than the end of the first."""

    def stands() -> datetime:
        status = get_statuses(scene.operator, ["a"], schema=scene.schema)["a"]
        assert status.state == "waiting"
        return status.at

    def ended() -> datetime:
        rows = scene.query(f"SELECT max(ended_at) FROM {scene.schema}.attempts")
        at: datetime = rows[0][0]
        return at

    scene.wrong["a"] = ValueError("no")
    scene.run(scene.record("a", "pay", {}))
    first = stands()
    assert first == ended()
    scene.due_now()
    scene.run_due()
    scene.retry("a")
    retried = stands()
    assert retried > ended() > first
    scene.run_due()
    assert stands() == ended() > retried


def test_a_retry_while_a_resend_runs_leaves_one_effect(scene: Scene) -> None:
    scene.wrong["a"] = ValueError("no")
    record = scene.record("a", "once", {})
    scene.run(record)
    assert scene.rows() == {"a": ("failed", "handler_error")}
    del scene.wrong["a"]

    scene.entered.clear()
    scene.go_on.clear()
    resend = threading.Thread(target=scene.run, args=(record,))
    resend.start()
    assert scene.entered.wait(60)
    assert len(scene.retry("a").moved) == 1, "the row is not locked while its handler runs"
    scene.go_on.set()
    resend.join(20)

    assert scene.effects() == [], "the resend found its row moved, and was rolled back"
    assert scene.state("a") == ("waiting", "retried")
    scene.run_due()
    assert scene.rows() == {"a": ("done", "ok")}
    assert scene.effects() == ["a"]


def test_what_was_cancelled_after_its_lease_has_no_effect(scene: Scene) -> None:
    scene.run(scene.record("a", "pay", {}, ce_notbefore="2035-01-01T00:00:00Z"))
    scene.due_now()
    records = scene.claimed()
    scene.query(f"UPDATE {scene.schema}.requests SET lease_until = now(), due_at = now()")

    assert len(cancel(scene.operator, ["a"], BY, schema=scene.schema).moved) == 1
    scene.run(*records)

    assert scene.rows() == {"a": ("cancelled", "cancelled")}
    assert scene.effects() == []


def test_what_was_cancelled_while_it_ran_beyond_its_lease_is_rolled_back(scene: Scene) -> None:
    scene.run(scene.record("a", "pay", {}, ce_notbefore="2035-01-01T00:00:00Z"))
    scene.due_now()
    records = scene.claimed()
    scene.entered.clear()
    scene.go_on.clear()
    run = threading.Thread(target=scene.run, args=records)
    run.start()
    assert scene.entered.wait(60)
    scene.query(f"UPDATE {scene.schema}.requests SET lease_until = now(), due_at = now()")
    assert len(cancel(scene.operator, ["a"], BY, schema=scene.schema).moved) == 1
    scene.go_on.set()
    run.join(20)

    assert scene.rows() == {"a": ("cancelled", "cancelled")}
    assert scene.effects() == []


def test_of_a_claim_and_a_cancel_one_has_the_row(scene: Scene) -> None:
    scene.run(scene.record("a", "pay", {}, ce_notbefore="2035-01-01T00:00:00Z"))
    scene.due_now()
    journal = Journal(scene.url, scene.schema)
    want = ClaimRequest(1, 10)
    with psycopg.connect(scene.url) as claimer:
        claimer.execute("SELECT 1")  # in a transaction that ends after the claim
        assert len(claim(claimer, INSTANCE, want, schema=scene.schema).rows) == 1
        late = journal.rival(lambda c: cancel(c, ["a"], BY, schema=scene.schema))
    assert "is running right now" in late.result().refused[0].reason

    scene.query(f"UPDATE {scene.schema}.requests SET token = NULL, due_at = now()")
    with psycopg.connect(scene.url) as operator:
        assert len(cancel(operator, ["a"], BY, schema=scene.schema).moved) == 1
        assert scene.claimed() == [], "it passes over what is locked"
    assert scene.claimed() == []
    journal.close()
    assert scene.rows() == {"a": ("cancelled", "cancelled")}


@pytest.mark.parametrize("resolution,effects", [("done", 0), ("failed", 0), ("retry", 1)])
def test_the_late_end_of_a_call_misses_what_was_resolved(
    scene: Scene, resolution: Any, effects: int
) -> None:
    scene.entered.clear()
    scene.go_on.clear()
    run = threading.Thread(target=scene.run, args=(scene.record("a", "call", {}),))
    run.start()
    assert scene.entered.wait(60)
    scene.query(f"UPDATE {scene.schema}.requests SET state = 'in_doubt', lease_until = NULL")
    outcome = resolve(scene.operator, ["a"], resolution, BY, schema=scene.schema)
    assert len(outcome.moved) == 1
    scene.go_on.set()
    run.join(20)

    assert scene.rows()["a"][0] == {"retry": "waiting"}.get(resolution, resolution)
    assert scene.effects() == [], "its transaction was rolled back"
    scene.run_due()
    assert len(scene.effects()) == effects


def test_a_message_that_got_an_id_runs_and_its_id_is_known_from_then_on(scene: Scene) -> None:
    scene.run(scene.record(None, "pay", {"n": 1}, key=b"k", tenant="7"))
    ((number,),) = scene.query(f"SELECT id FROM {scene.schema}.dead_letters")

    moved = retry_letter(scene.operator, number, BY, id="a", schema=scene.schema)
    assert isinstance(moved, Moved)
    scene.run_due()

    assert scene.rows() == {"a": ("done", "ok")}
    scene.run(scene.record("a", "pay", {"n": 1}))
    assert scene.effects() == ["a"], "answered"
    scene.run(scene.record("a", "pay", {"n": 2}))
    assert ("conflict", "a") in scene.letters(), "its fingerprint was filled in"


def test_a_retry_of_a_malformed_one_is_told_after_its_failure(scene: Scene) -> None:
    scene.run(scene.record("a", "pay", {}, ce_timeout="soon"))
    scene.query(f"UPDATE {scene.schema}.dead_letters SET headers = headers - 0")
    ((number,),) = scene.query(f"SELECT id FROM {scene.schema}.dead_letters")

    moved = retry_letter(scene.operator, number, BY, schema=scene.schema)

    assert isinstance(moved, Moved)
    (failed,) = scene.statuses
    assert failed["state"] == "failed"
    assert moved.status().value[6:12].decode() > failed["v"]


def test_a_newer_request_takes_the_place_of_a_retried_one(scene: Scene) -> None:
    scene.wrong["old"] = ValueError("no")
    scene.run(scene.record("old", "count", {"sku": "x"}))
    scene.kill("old")
    assert scene.rows()["old"][0] == "dead"
    assert len(scene.retry("old").moved) == 1

    scene.run(scene.record("new", "count", {"sku": "x"}))
    assert scene.rows()["old"] == ("superseded", "superseded")
    scene.due_now()
    scene.run_due()

    assert scene.rows()["new"] == ("done", "ok")
    assert scene.effects() == ["new"]


def test_an_old_one_is_not_retried_after_a_newer_one_ran(scene: Scene) -> None:
    scene.wrong["old"] = ValueError("no")
    scene.run(scene.record("old", "count", {"sku": "x"}))
    scene.kill("old")
    scene.run(scene.record("new", "count", {"sku": "x"}, ce_time="2030-01-01T00:00:00Z"))
    scene.due_now()
    scene.run_due()
    assert scene.rows()["new"] == ("done", "ok")

    (refused,) = scene.retry("old").refused

    assert "gives way to new" in refused.reason
    assert scene.rows()["old"][0] == "dead"
