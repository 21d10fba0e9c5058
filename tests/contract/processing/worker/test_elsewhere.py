"""What is read again while whoever had it before is at it yet comes back, and nothing is written.

So does what follows it in its lane.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from feedback.contract.record import read_again
from processing import App, Request
from stack import Stack
from tests.support.executor import Bench

KEY = b"k"


@pytest.fixture
def ran() -> list[str]:
    return []


@pytest.fixture
def bench(stack: Stack, schema: str, ran: list[str]) -> Iterator[Bench]:
    app = App()

    @app.handler("one")
    def one(payload: Any, tx: psycopg.Cursor[Any], request: Request) -> None:
        ran.append(request.id)
        if payload:
            tx.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [payload])

    @app.handler("charge", effect="external")
    def charge(payload: Any, request: Request) -> None:
        ran.append(request.id)

    made = Bench(app, stack.database, schema, lock_timeout=0.2)
    yield made
    made.executor.close()
    made.app.stop_worker()


def claimed(bench: Bench, record: Any) -> None:
    """Its call is under way under another's claim."""
    bench.query(
        f"INSERT INTO {bench.schema}.requests (id, type, state, code, effect, topic, partition,"
        " kafka_offset, produced_at, token, run, due_at)"
        " VALUES ('a', 'charge', 'running', 'ok', 'external', %s, %s, %s, now(), 'others', 1,"
        " now() + interval '1 min')",
        *record[:3],
    )  # fmt: skip


def settle(bench: Bench, state: str = "done") -> None:
    bench.query(
        f"UPDATE {bench.schema}.requests SET state = %s, token = NULL, due_at = NULL,"
        " finished_at = '2026-01-02 03:04:05.678Z' WHERE id = 'a'",
        state,
    )


def test_a_call_that_is_under_way_comes_back_with_what_follows_it(
    bench: Bench, ran: list[str]
) -> None:
    first = read_again(bench.record("a", "charge", {}, key=KEY), left=True)
    records = [first, *(bench.record(name, "one", "", key=KEY) for name in "bc")]
    claimed(bench, first)
    report = bench.run(*records, bench.record("other", "one", "", key=b"other"))
    assert (report.elsewhere, report.alone, sorted(report.returned)) == ([0], [0], [0, 1, 2])
    assert ran == ["other"]
    assert bench.state("a") is None, "nothing is said of it"
    settle(bench)
    report = bench.run(*records)
    assert (report.elsewhere, report.returned) == (None, [])
    assert ran == ["other", "b", "c"]
    assert bench.state("a") == ("done", "ok")


def test_what_follows_it_and_only_ends_comes_back_as_well(bench: Bench) -> None:
    first = read_again(bench.record("a", "charge", {}, key=KEY), left=True)
    claimed(bench, first)
    late = {"ce_expirytime": "2020-01-01T00:00:00Z"}
    report = bench.run(first, bench.record("late", "charge", {}, key=KEY, **late))
    assert (report.elsewhere, sorted(report.returned)) == ([0], [0, 1])
    assert bench.rows() == {"a": ("running", "ok")}


def test_a_doubt_is_told_as_it_stood_where_nobody_has_sent_it_again(bench: Bench) -> None:
    """Else it would be taken for the answer to what is sent again meanwhile, and stands behind."""
    first = bench.record("a", "charge", {}, key=KEY)
    claimed(bench, first)
    settle(bench, "in_doubt")
    bench.run(read_again(first))
    bench.run(bench.record("a", "charge", {}, key=KEY))
    again, resent = (status["at"] for status in bench.statuses)
    assert again == "2026-01-02T03:04:05.678000Z"
    assert resent > again


@pytest.mark.parametrize("case", ["resend", "not begun", "no key", "died"])
def test_others_are_answered_by_the_row(bench: Bench, case: str) -> None:
    record = bench.record("a", "charge", {}, key=None if case == "no key" else KEY)
    claimed(bench, record)
    if case != "resend":
        record = read_again(record, begun=case != "not begun", left=case != "died")
    report = bench.run(record)
    assert (report.elsewhere, report.returned) == (None, [])
    assert bench.state("a") == ("running", "ok")
