"""What stands in the way of giving claims back keeps none of the others from being renewed."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from feedback.journal.claims import ClaimRequest, claim
from processing.ipc.frames import ReleaseClaims, RenewCalls, RenewClaims, WantRows
from processing.logs import get_logger
from processing.maintenance import claimer as claimers
from processing.maintenance.claimer import Claimer
from processing.maintenance.dead_backends import DeadBackends
from processing.maintenance.reporting import Reporting
from processing.settings import MaintenanceSettings
from stack import Stack
from tests.support.backends import backend_of, stopped
from tests.support.claiming import waits_for_a_lock
from tests.support.proxy import Proxy
from tests.support.waiting import eventually
from tests.support.waiting_rows import WaitingRows

LOG = get_logger("test")


def unused(*_: Any) -> None:
    """Nothing is told here."""


def test_a_dead_workers_session_that_does_not_end(
    stack: Stack, schema: str, rows: WaitingRows
) -> None:
    """Its server process is stopped, or waits for a disk that does not answer."""
    settings = MaintenanceSettings("here", stack.database, schema, stack.redis, "p", {})
    claimer = Claimer(settings, Reporting(unused, unused, unused, 60), LOG, DeadBackends(LOG))
    rows.add("kept", "held", "given back")
    claim(rows.connection, "here", ClaimRequest(1, 10), schema=schema)
    rows.query(f"UPDATE {schema}.requests SET lease_until = now(), due_at = now()")
    token = f"SELECT token FROM {schema}.requests WHERE id = %s"
    with closing(psycopg.connect(stack.database, autocommit=True)) as worker:
        backend = backend_of(worker)
        claimer.on_frame(RenewClaims([("kept", 1)]))
        claimer.on_frame(RenewCalls([]))
        claimer.on_frame(ReleaseClaims([("held", 1)], [backend]))
        claimer.on_frame(ReleaseClaims([("given back", 1)], []))
        with stopped(backend[0]):
            assert claimer.renewals.pause(0.0) == 0.0
            claimer.renewals.renew(rows.connection)
            assert claimer.renewals.pause(0.0) is None
            claimer.give_back(rows.connection)
            ((due,),) = rows.query(f"SELECT due_at FROM {schema}.requests WHERE id = 'kept'")
            assert due > datetime.now(UTC) + timedelta(seconds=30)
            assert rows.query(token, "given back") == [(None,)]
            assert rows.query(token, "held") == [("here:1",)]
            pause = claimer.return_pause(time.monotonic())
            assert pause is not None
            assert 0 < pause < 1, "it is looked at again, not at once and not too late"
        there = "SELECT FROM pg_stat_activity WHERE pid = %s"
        eventually(lambda: not rows.query(there, backend[0]))

    def given_back() -> bool:
        claimer.give_back(rows.connection)  # looks at it once it is time to look again
        return rows.query(token, "held") == [(None,)]

    eventually(given_back)
    assert claimer.return_pause(time.monotonic()) is None


def test_nothing_is_claimed_while_leases_cannot_be_renewed(
    stack: Stack, schema: str, rows: WaitingRows
) -> None:
    """Else rows in hand here, whose leases run out meanwhile, were claimed again here."""
    settings = MaintenanceSettings("here", stack.database, schema, stack.redis, "p", {})
    claimer = Claimer(settings, Reporting(unused, unused, unused, 60), LOG, DeadBackends(LOG))
    rows.add("in hand")
    claim(rows.connection, "here", ClaimRequest(1, 10), schema=schema)
    claimer.on_frame(WantRows(2, 10, {}, []))
    claimer.on_frame(RenewClaims([("in hand", 1)]))
    rows.query("SET default_transaction_read_only = on")
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        claimer.renewals.renew(rows.connection)
    assert claimer.pause(time.monotonic()) is None
    rows.query("SET default_transaction_read_only = off")
    claimer.renewals.renew(rows.connection)
    assert claimer.pause(time.monotonic()) is not None


def test_what_waits_for_a_session_is_given_up_when_its_lease_has_run_out(
    stack: Stack, schema: str, rows: WaitingRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then it is any instance's, and nobody here has anything to give back."""
    monkeypatch.setattr(claimers, "LEASE", 0.0)
    settings = MaintenanceSettings("here", stack.database, schema, stack.redis, "p", {})
    claimer = Claimer(settings, Reporting(unused, unused, unused, 60), LOG, DeadBackends(LOG))
    rows.add("held")
    claim(rows.connection, "here", ClaimRequest(1, 10), schema=schema)
    with closing(psycopg.connect(stack.database, autocommit=True)) as worker:
        backend = backend_of(worker)
        with stopped(backend[0]):
            claimer.on_frame(ReleaseClaims([("held", 1)], [backend]))
            claimer.give_back(rows.connection)
            assert claimer.return_pause(time.monotonic()) is None
    assert rows.columns("held", "token") == ("here:1",)


def test_what_a_new_process_has_claimed_itself_is_no_stray(
    stack: Stack, schema: str, rows: WaitingRows
) -> None:
    """It claims before the main process, which asked it while it started, says what is in hand."""
    settings = MaintenanceSettings("here", stack.database, schema, stack.redis, "p", {})
    claimer = Claimer(settings, Reporting(unused, unused, unused, 60), LOG, DeadBackends(LOG))
    rows.add("of the one before", "in hand")
    claim(rows.connection, "here", ClaimRequest(1, 10), schema=schema)
    claimer.learn(["effect"])
    claimer.on_frame(WantRows(2, 10, {}, []))
    rows.add("claimed here")
    claimer.claim(rows.connection)
    claimer.on_frame(RenewClaims([("in hand", 1)], 2))
    claimer.give_back(rows.connection)
    tokens = dict(rows.query(f"SELECT id, token FROM {schema}.requests"))
    assert tokens == {"of the one before": None, "in hand": "here:1", "claimed here": "here:2"}
    claimer.on_frame(WantRows(3, 10, {}, []))
    claimer.on_frame(RenewClaims([], 3))
    claimer.give_back(rows.connection)
    assert dict(rows.query(f"SELECT id, token FROM {schema}.requests")) == {
        "of the one before": None, "in hand": None, "claimed here": "here:2",
    }  # fmt: skip


def test_a_claim_that_lands_after_its_server_was_asked(
    stack: Stack, schema: str, rows: WaitingRows, proxy: Proxy, through: str
) -> None:
    """Nobody has it in hand; what was claimed since under the same order stays."""
    settings = MaintenanceSettings("here", stack.database, schema, stack.redis, "p", {})
    claimer = Claimer(settings, Reporting(unused, unused, unused, 60), LOG, DeadBackends(LOG))
    rows.add("late")
    rows.query(
        f"CREATE FUNCTION {schema}.hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" LOCK TABLE {schema}.counters; RETURN NULL; END $$"
    )
    rows.query(
        f"CREATE CONSTRAINT TRIGGER hold AFTER UPDATE ON {schema}.requests DEFERRABLE INITIALLY"
        f" DEFERRED FOR EACH ROW WHEN (NEW.id = 'late') EXECUTE FUNCTION {schema}.hold()"
    )
    tokens = f"SELECT id, token FROM {schema}.requests ORDER BY id"
    claimer.learn(["effect"])
    claimer.on_frame(WantRows(5, 10, {}, []))
    with closing(psycopg.connect(stack.database)) as holder:
        holder.execute(f"LOCK TABLE {schema}.counters".encode())
        with closing(psycopg.connect(through, autocommit=True)) as line:

            def cut() -> None:
                eventually(lambda: waits_for_a_lock(rows, line))
                proxy.cut_connections()

            cutting = threading.Thread(target=cut)
            cutting.start()
            with pytest.raises(psycopg.OperationalError):
                claimer.claim(line)
            cutting.join()
        assert claimer.return_pause(time.monotonic()) == 0.0
        claimer.give_back(rows.connection)
        rows.add("next")
        claimer.woken()
        claimer.claim(rows.connection)
        assert rows.query(tokens) == [("late", None), ("next", "here:5")]
        assert claimer.return_pause(0.0)
    eventually(lambda: rows.columns("late", "token") == ("here:5",))
    claimer.give_back(rows.connection)
    assert rows.query(tokens) == [("late", None), ("next", "here:5")]
    assert claimer.return_pause(time.monotonic()) is None


def free(rows: WaitingRows) -> list[str]:
    named = "token IS NULL AND type NOT LIKE 'made%'"
    statement = f"SELECT id FROM {rows.schema}.requests WHERE {named}"
    return sorted(name for (name,) in rows.query(statement))


@pytest.fixture
def claimer(stack: Stack, schema: str, rows: WaitingRows) -> Claimer:
    """It is told what is in hand, and what is given back, by a main process with a process before.

    That one had claimed two rows that nobody has.
    """
    rows.add("mine", type="b")
    rows.add("first", type="a")
    rows.add("last", type="z")
    claim(rows.connection, "here", ClaimRequest(1, 10), schema=schema)
    settings = MaintenanceSettings("here", stack.database, schema, stack.redis, "p", {})
    claimer = Claimer(settings, Reporting(unused, unused, unused, 60), LOG, DeadBackends(LOG))
    claimer.on_frame(ReleaseClaims([("mine", 1)], []))
    claimer.on_frame(RenewClaims([("mine", 1)], 1))
    return claimer


def test_claims_are_given_back_though_those_of_the_process_before_cannot_be_found(
    claimer: Claimer, rows: WaitingRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(*_: Any, **__: Any) -> Any:
        raise psycopg.errors.QueryCanceled

    monkeypatch.setattr(claimers, "claims_of", cut_off)
    with pytest.raises(psycopg.errors.QueryCanceled):
        claimer.give_back(rows.connection)
    assert free(rows) == ["mine"]


def test_claims_of_the_process_before_are_found_some_types_at_a_time(
    claimer: Claimer, rows: WaitingRows
) -> None:
    """Anybody can make up types, and leases have to be renewed meanwhile."""
    rows.add_types(4500)
    found: list[list[str]] = []
    while claimer.return_pause(time.monotonic()) == 0.0:
        claimer.give_back(rows.connection)
        found.append(free(rows))
    assert found == [["first", "mine"], ["first", "mine"], ["first", "last", "mine"]]
    assert rows.columns("last", "lost_claims") == (0,)
