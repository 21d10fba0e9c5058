"""Somebody has the table locked against writes for longer than leases last: a rebuilt index, say.

Nothing can be renewed meanwhile, by nobody, and nobody is dead.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from processing.ipc.frames import DueRows, RenewCalls, RenewClaims, WantRows
from stack import Stack
from tests.process.processing.maintenance.test_claimer import due, turn
from tests.support.maintenance import StartMaintenance
from tests.support.waiting import eventually
from tests.support.waiting_rows import WaitingRows

SESSION = "FROM pg_stat_activity WHERE application_name = %s AND backend_type = 'client backend'"


@contextmanager
def locked(stack: Stack, rows: WaitingRows) -> Iterator[None]:
    with psycopg.connect(stack.database) as holder:
        holder.execute(f"LOCK TABLE {rows.schema}.requests IN SHARE MODE".encode())
        yield


def add_call(rows: WaitingRows) -> None:
    rows.add("call", state="running", type="call", effect="external", token="chunk")
    rows.query(f"UPDATE {rows.schema}.requests SET due_at = NULL WHERE id = 'call'")


def end_leases_in(rows: WaitingRows, seconds: float) -> None:
    ends = f"now() + interval '{seconds} s'"
    rows.query(
        f"UPDATE {rows.schema}.requests SET lease_until = {ends},"
        f" due_at = CASE WHEN state = 'waiting' THEN {ends} END"
    )


def wait_for_their_end(rows: WaitingRows) -> None:
    over = f"SELECT bool_and(lease_until < clock_timestamp()) FROM {rows.schema}.requests"
    eventually(lambda: rows.query(over) == [(True,)])


def test_who_could_not_renew_his_own_takes_none_for_dead_and_renews_first(
    ready: StartMaintenance,
    rows: WaitingRows,
    stack: Stack,
    prefix: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    one, two = ready("one", sweep_interval=0.1), ready(prefix, sweep_interval=0.1)
    rows.add("row")
    two.send(WantRows(1, 10, {}, []))
    assert due(two) == ["row"]
    add_call(rows)
    end_leases_in(rows, 2.0)
    said: list[str] = []

    def says(what: str) -> bool:
        said.append(capfd.readouterr().err)
        return what in "".join(said)

    waits = f"SELECT query {SESSION} AND wait_event_type = 'Lock'"
    with locked(stack, rows):
        two.send(RenewClaims([("row", 1)]))
        two.send(RenewCalls(["chunk"]))
        one.send(WantRows(1, 10, {}, []))
        eventually(lambda: says('"work":"renew"'), 60)
        wait_for_their_end(rows)
        eventually(lambda: rows.query(waits, f"oncepool maintenance {prefix}"))
    held = "SELECT bool_and(lease_until > now()) FROM {}.requests"
    eventually(lambda: rows.query(held.format(rows.schema)) == [(True,)])
    for n in range(1, 4):
        turn(one, n)
        turn(two, n)
    assert one.received(DueRows) == []
    assert rows.columns("row", "token", "run", "lost_claims") == (f"{prefix}:1", 1, 0)
    assert rows.columns("call", "state", "crashes") == ("running", 0)


def test_who_has_nothing_in_hand_waits_for_those_that_may_renew(
    ready: StartMaintenance, rows: WaitingRows, stack: Stack, prefix: str
) -> None:
    """Its look whether the table can be written waits for nobody: it does not come first."""
    idle = ready(prefix, sweep_interval=0.1)
    add_call(rows)
    end_leases_in(rows, 1.0)
    swept = f"""SELECT 1 {SESSION} AND query ~ 'doubted|ROLLBACK' AND query_start > (
        SELECT lease_until FROM {rows.schema}.requests WHERE id = 'call')"""
    with locked(stack, rows):
        wait_for_their_end(rows)
        eventually(lambda: rows.query(swept, f"oncepool maintenance {prefix}"))
    for n in range(1, 6):
        turn(idle, n)
    assert rows.columns("call", "state", "crashes") == ("running", 0)
