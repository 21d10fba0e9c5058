"""What stands in the way of giving claims back keeps none of the others from being renewed."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import psycopg
import pytest

from feedback.journal.backends import end_backends
from feedback.journal.claims import ClaimRequest, claim
from processing.ipc.frames import ReleaseClaims, RenewCalls, RenewClaims, WantRows
from processing.logs import get_logger
from processing.maintenance import claimer as claimers
from processing.maintenance.claimer import Claimer
from processing.maintenance.reporting import Reporting
from processing.settings import MaintenanceSettings
from stack import Stack
from tests.support.waiting_rows import WaitingRows


def unused(*_: Any) -> None:
    """Nothing is told here."""


def test_a_dead_workers_session_that_does_not_end(
    stack: Stack, schema: str, rows: WaitingRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server process is stopped, or waits for a disk that does not answer."""
    monkeypatch.setattr(claimers, "end_backends", partial(end_backends, timeout=0.5))
    settings = MaintenanceSettings("here", stack.database, schema, stack.redis, "p", {})
    claimer = Claimer(settings, Reporting(unused, unused, unused, 60), get_logger("test"))
    rows.add("kept", "given back")
    claim(rows.connection, "here", ClaimRequest(1, 10), schema=schema)
    rows.query(f"UPDATE {schema}.requests SET lease_until = now(), due_at = now()")
    with closing(psycopg.connect(stack.database, autocommit=True)) as worker:
        (found,) = worker.execute(
            "SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()"
        )
        pid, start = found
        claimer.on_frame(RenewClaims([("kept", 1)]))
        claimer.on_frame(RenewCalls([]))
        claimer.on_frame(ReleaseClaims([("given back", 1)], [(pid, start)]))
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(psycopg.OperationalError, match="does not end"):
                claimer.keep_claims(rows.connection)
            ((due,),) = rows.query(f"SELECT due_at FROM {schema}.requests WHERE id = 'kept'")
            assert due > datetime.now(UTC) + timedelta(seconds=30)
        finally:
            os.kill(pid, signal.SIGCONT)
        claimer.keep_claims(rows.connection)
    assert rows.query(f"SELECT token FROM {schema}.requests WHERE id = 'given back'") == [(None,)]


def test_what_a_new_process_has_claimed_itself_is_no_stray(
    stack: Stack, schema: str, rows: WaitingRows
) -> None:
    """It claims before the main process, which asked it while it started, says what is in hand."""
    settings = MaintenanceSettings("here", stack.database, schema, stack.redis, "p", {})
    claimer = Claimer(settings, Reporting(unused, unused, unused, 60), get_logger("test"))
    rows.add("of the one before", "in hand")
    claim(rows.connection, "here", ClaimRequest(1, 10), schema=schema)
    claimer.on_frame(WantRows(2, 10, {}, []))
    rows.add("claimed here")
    claimer.claim(rows.connection)
    claimer.on_frame(RenewClaims([("in hand", 1)], 2))
    claimer.keep_claims(rows.connection)
    tokens = dict(rows.query(f"SELECT id, token FROM {schema}.requests"))
    assert tokens == {"of the one before": None, "in hand": "here:1", "claimed here": "here:2"}
    claimer.on_frame(WantRows(3, 10, {}, []))
    claimer.on_frame(RenewClaims([], 3))
    claimer.keep_claims(rows.connection)
    assert dict(rows.query(f"SELECT id, token FROM {schema}.requests")) == {
        "of the one before": None, "in hand": None, "claimed here": "here:2",
    }  # fmt: skip
