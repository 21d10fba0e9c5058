"""Requests in doubt that nobody sends again: their checks are asked all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from feedback.journal.claimed_rows import record_of
from feedback.journal.doubts import doubts_to_ask
from processing import App, Done, NotDone, Request, Unknown
from processing.ipc.frames import ASK, NO_ORDER, Loss, Report, Suspect
from stack import Stack
from tests.support.executor import Bench

TYPES = ("card.charge", "card.refund")


@pytest.fixture
def asked() -> list[tuple[str, int, Any]]:
    """What the check was asked about: id, attempt, payload."""
    return []


@pytest.fixture
def meanwhile() -> list[Callable[[], Any]]:
    """What happens while the check is asked."""
    return []


@pytest.fixture
def entered() -> list[str]:
    """Ids that a handler was entered with."""
    return []


@pytest.fixture
def bench(
    stack: Stack,
    schema: str,
    asked: list[tuple[str, int, Any]],
    meanwhile: list[Callable[[], Any]],
    entered: list[str],
) -> Iterator[Bench]:
    app = App()

    def check(request: Request[Any]) -> Done | NotDone | Unknown:
        asked.append((request.id, request.attempt, request.payload))
        if meanwhile:
            meanwhile.pop()()
        match request.id:
            case "done":
                return Done("paid")
            case "nothing":
                return NotDone()
            case "raises":
                raise OSError("no answer")
            case _:
                return Unknown()

    def call(payload: Any, request: Request[Any]) -> Any:
        entered.append(request.id)
        raise OSError("cut off")

    app.handler("card.charge", effect="external", check=check)(call)
    app.handler("card.refund", effect="external", check=check, retries=2)(call)
    made = Bench(app, stack.database, schema, results=True)
    yield made
    made.executor.close()
    app.stop_worker()


def ask(bench: Bench, crashes: int = 0, losses: tuple[Loss, ...] = ()) -> list[Report]:
    """Asks about all whose time has come."""
    with psycopg.connect(bench.url, autocommit=True) as connection:
        bench.query(f"UPDATE {bench.schema}.requests SET due_at = NULL WHERE state = 'in_doubt'")
        found = doubts_to_ask(connection, TYPES, 10, 0.0, schema=bench.schema)
    suspect = Suspect(ASK, (), (), crashes, losses=losses)
    return [bench.run(record_of(row, NO_ORDER), suspect=suspect) for row in found]


def row(bench: Bench, columns: str) -> tuple[Any, ...]:
    [found] = bench.query(f"SELECT {columns} FROM {bench.schema}.requests")
    return found


COUNTED = "state, code, attempt, used, run, resends, lost_claims"


def test_what_its_check_finds_done_is_done(
    bench: Bench, asked: list[tuple[str, int, Any]], entered: list[str]
) -> None:
    bench.run(bench.record("done", "card.charge", {"cents": 5}))
    [report] = ask(bench)
    assert row(bench, COUNTED) == ("done", "ok", 1, 1, 1, 0, 0)
    assert asked == [("done", 1, {"cents": 5})]
    assert entered == ["done"]
    assert dict(report.counts) == {("card.charge", "done", "ok"): 1}
    status = bench.statuses[-1]
    assert (status["state"], status["result"], status["v"]) == ("done", "paid", "000019")
    assert bench.query(f"SELECT state FROM {bench.schema}.results ORDER BY id") == [
        ("in_doubt",), ("done",),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "kind, end",
    [("card.charge", ("failed", "handler_error", 1, 1, 2, 0, 0)),
     ("card.refund", ("waiting", "handler_error", 1, 1, 2, 0, 0))],
)  # fmt: skip
def test_what_did_not_happen_fails_or_waits_for_its_next_attempt(
    bench: Bench, entered: list[str], kind: str, end: tuple[Any, ...]
) -> None:
    """Its handler is not entered here: as after any other failure."""
    bench.run(bench.record("nothing", kind, {}))
    ask(bench)
    assert row(bench, COUNTED) == end
    assert entered == ["nothing"]
    assert row(bench, "payload, token IS NULL, due_at IS NULL") == (
        b"{}", end[0] == "waiting", end[0] == "failed",
    )  # fmt: skip
    assert bench.statuses[-1]["state"] == end[0]
    assert bench.query(f"SELECT run, code FROM {bench.schema}.attempts") == [(1, "handler_error")]


@pytest.mark.parametrize(
    "code, end",
    [
        ("timeout", ("failed", "timeout")), ("cancelled", ("cancelled", "cancelled")),
        ("shutdown", ("waiting", "parked")), ("worker_died", ("failed", "worker_died")),
    ],
)  # fmt: skip
def test_it_ends_as_its_run_would_have_without_an_effect_outside(
    bench: Bench, code: str, end: tuple[str, str]
) -> None:
    bench.run(bench.record("nothing", "card.charge", {}))
    bench.query(f"UPDATE {bench.schema}.requests SET code = '{code}', crashes = 1")
    ask(bench)
    assert row(bench, "state, code") == end


def test_who_cancelled_it_is_told_when_it_turns_out_that_it_had_no_effect(bench: Bench) -> None:
    bench.run(bench.record("nothing", "card.charge", {}))
    bench.query(
        f"UPDATE {bench.schema}.requests SET code = 'cancelled', reason = 'cancelled by ann: slow'"
    )
    ask(bench)
    assert row(bench, "state, reason") == ("cancelled", "cancelled by ann: slow")
    assert bench.statuses[-1]["reason"] == "cancelled by ann: slow"


def test_what_killed_its_worker_twice_is_dead(bench: Bench) -> None:
    bench.run(bench.record("nothing", "card.charge", {}))
    bench.query(f"UPDATE {bench.schema}.requests SET code = 'worker_died', crashes = 2")
    ask(bench)
    assert row(bench, "state, code") == ("dead", "worker_died")


def test_what_has_expired_meanwhile_is_refused(bench: Bench) -> None:
    bench.run(bench.record("nothing", "card.charge", {}))
    bench.query(
        f"UPDATE {bench.schema}.requests SET headers = headers || jsonb_build_array("
        " jsonb_build_array('ce_expirytime', encode('2020-01-01T00:00:00Z', 'base64')))"
    )
    ask(bench)
    assert row(bench, "state, code") == ("rejected", "expired")


@pytest.mark.parametrize("name", ["nobody knows", "raises"])
def test_what_the_check_cannot_tell_stays_as_it_is(
    bench: Bench, asked: list[tuple[str, int, Any]], name: str
) -> None:
    bench.run(bench.record(name, "card.charge", {}))
    before, told = row(bench, f"{COUNTED}, finished_at, error, token"), len(bench.statuses)
    for _ in range(2):
        [report] = ask(bench)
        assert row(bench, f"{COUNTED}, finished_at, error, token") == before
        assert dict(report.counts) == {}
        assert (report.returned, report.unclear) == ([], [])
    assert len(asked) == 2
    assert len(bench.statuses) == told


def test_what_an_operator_settles_meanwhile_stands(
    bench: Bench, meanwhile: list[Callable[[], Any]]
) -> None:
    bench.run(bench.record("done", "card.charge", {}))
    resolve = (
        f"UPDATE {bench.schema}.requests SET state = 'failed', code = 'resolved', run = run + 1,"
        " token = NULL"
    )
    meanwhile.append(lambda: bench.query(resolve))
    ask(bench)
    assert row(bench, "state, code, run") == ("failed", "resolved", 2)
    assert bench.state("done") == ("failed", "resolved")


def test_what_was_settled_before_is_not_asked_about(
    bench: Bench, asked: list[tuple[str, int, Any]]
) -> None:
    bench.run(bench.record("done", "card.charge", {}))
    with psycopg.connect(bench.url, autocommit=True) as connection:
        [found] = doubts_to_ask(connection, TYPES, 10, 0.0, schema=bench.schema)
    for change in (f"UPDATE {bench.schema}.requests SET state = 'done'",
                   f"DELETE FROM {bench.schema}.requests"):  # fmt: skip
        bench.query(change)
        report = bench.run(record_of(found, NO_ORDER), suspect=Suspect(ASK, (), ()))
        assert (report.returned, report.unclear, dict(report.counts)) == ([], [], {})
    assert asked == []
    assert bench.rows() == {}


def test_a_check_whose_worker_died_is_not_asked_at_once_again(
    bench: Bench, asked: list[tuple[str, int, Any]]
) -> None:
    bench.run(bench.record("done", "card.charge", {}))
    ask(bench, crashes=1, losses=((10.0, 11.0, "signal SIGSEGV"),))
    assert asked == []
    assert row(bench, COUNTED) == ("in_doubt", "handler_error", 1, 1, 1, 0, 1)


def test_a_check_that_had_its_time_is_not_counted_as_one_that_ends_workers(bench: Bench) -> None:
    """The other side does not answer: that may last, and is no reason to ask it no more."""
    bench.run(bench.record("done", "card.charge", {}))
    ask(bench, crashes=1, losses=((10.0, 312.0, "signal SIGKILL"),))
    assert row(bench, COUNTED) == ("in_doubt", "handler_error", 1, 1, 1, 0, 0)


def test_an_end_that_the_database_refuses_is_left_to_the_next_time(bench: Bench) -> None:
    """It must not stand before all others that are to be asked about."""
    bench.run(bench.record("done", "card.charge", {}))
    bench.query(f"ALTER TABLE {bench.schema}.requests ADD CHECK (state <> 'done')")
    [report] = ask(bench)
    assert (report.returned, report.unclear, report.refused) == ([], [], False)
    assert report.database_up
    assert row(bench, "state, lost_claims") == ("in_doubt", 1)


def test_what_a_check_said_outlives_the_connection_that_was_lost_meanwhile(
    bench: Bench, asked: list[tuple[str, int, Any]], meanwhile: list[Callable[[], Any]]
) -> None:
    """Else one that takes longer than a session may be idle would be asked again for ever."""
    bench.run(bench.record("done", "card.charge", {}))
    meanwhile.append(bench.end_session)
    [report] = ask(bench)
    assert row(bench, COUNTED) == ("done", "ok", 1, 1, 1, 0, 0)
    assert dict(report.counts) == {("card.charge", "done", "ok"): 1}
    assert [name for name, _, _ in asked] == ["done"]


def test_what_cannot_be_read_any_more_is_named(
    bench: Bench, caplog: pytest.LogCaptureFixture, asked: list[tuple[str, int, Any]]
) -> None:
    bench.run(bench.record("done", "card.charge", {}))
    bench.query(f"UPDATE {bench.schema}.requests SET payload = 'no JSON'")
    ask(bench)
    assert asked == []
    assert "its payload can't be read any more" in caplog.text
