"""The waiting queue: claims, renewals, releases."""

from __future__ import annotations

from datetime import UTC, datetime

import psycopg
import pytest

from feedback.contract.record import CLAIM, claim_of
from feedback.contract.states import State
from feedback.journal.connections import due_channel
from feedback.status.redis_store import RedisStatusStore
from feedback.status.status import StatusFields, StatusWrite
from processing.ipc.frames import (
    DatabaseState,
    DeclareApp,
    DueRows,
    ProbeDatabase,
    ReleaseClaims,
    RenewCalls,
    RenewClaims,
    RowDueIn,
    WantRows,
)
from stack import Stack
from tests.support.claiming import reference
from tests.support.maintenance import MaintenanceProcess, StartMaintenance, state_of
from tests.support.proxy import Proxy, commit_after
from tests.support.waiting import eventually
from tests.support.waiting_rows import WaitingRows

CLAIM_DUE = b"lost_claims = r.lost_claims + (r.token IS NOT NULL)"
"""In the statement that claims due rows, and in no other."""


def due(maintenance: MaintenanceProcess, count: int = 1, timeout: float = 60.0) -> list[str]:
    """The ids of the frame number `count` of due rows."""
    frame = maintenance.wait_for(DueRows, count, timeout)
    assert all(record[CLAIM] == frame.order for record, _ in frame.rows)
    return [claim_of(record)[0] for record, _ in frame.rows]


def turn(maintenance: MaintenanceProcess, count: int) -> None:
    """Wakes it, and waits until it has turned to its database since: for the `count`-th time."""
    maintenance.send(RowDueIn(0.0))
    maintenance.send(ProbeDatabase())
    assert maintenance.wait_for(DatabaseState, count).up


def test_rows_come_when_they_are_wanted_and_not_before(
    ready: StartMaintenance, rows: WaitingRows
) -> None:
    maintenance = ready()
    rows.add("a", "b")
    turn(maintenance, 1)
    assert maintenance.received(DueRows) == []
    maintenance.send(WantRows(1, 10, {}, []))
    assert sorted(due(maintenance)) == ["a", "b"]
    assert rows.columns("a", "token") == ("here:1",)
    rows.add("c")
    turn(maintenance, 2)
    assert len(maintenance.received(DueRows)) == 1
    maintenance.send(WantRows(2, 10, {}, []))
    assert due(maintenance, 2) == ["c"]


def test_an_open_want_is_filled_when_a_row_becomes_due(
    ready: StartMaintenance, rows: WaitingRows
) -> None:
    maintenance = ready()
    maintenance.send(WantRows(1, 10, {}, []))
    rows.add("soon", due_in=0.5)
    assert due(maintenance) == ["soon"]
    assert rows.columns("soon", "due_in")[0] > 50


def test_a_row_that_another_instance_wrote_is_found(
    ready: StartMaintenance, rows: WaitingRows
) -> None:
    maintenance = ready()
    maintenance.send(WantRows(1, 10, {}, []))
    rows.add("x")
    assert due(maintenance) == ["x"]


def test_a_type_behind_thousands_of_others_comes_round(
    ready: StartMaintenance, rows: WaitingRows
) -> None:
    rows.add_types(2500)
    rows.add("last", due_in=-3600, type="zz.real")
    maintenance = ready()
    maintenance.send(WantRows(1, 10, {}, []))
    assert due(maintenance) == ["last"]


def test_each_type_has_its_turn_where_few_rows_are_wanted(
    ready: StartMaintenance, rows: WaitingRows
) -> None:
    """Those whose rows came due first would have all as long as they have a backlog."""
    for t in range(8):
        rows.add(*(f"t{t}-{i}" for i in range(9)), type=f"t{t}", due_in=t - 20.0)
    maintenance = ready()
    came: list[str] = []
    for order in range(1, 4):
        maintenance.send(WantRows(order, 3, {}, []))
        came += due(maintenance, order)
    assert {name.partition("-")[0] for name in came} == {f"t{t}" for t in range(8)}


def test_rows_of_the_apps_own_types_are_found_at_once_behind_thousands_of_others(
    ready: StartMaintenance, rows: WaitingRows
) -> None:
    rows.add_types(4500)
    rows.add("real", type="zz.real")
    maintenance = ready(claim_pause=3600.0)
    maintenance.send(DeclareApp(("zz.real",), (), ()))
    maintenance.send(WantRows(1, 10, {}, []))
    assert due(maintenance) == ["real"]


@pytest.mark.parametrize("how", ["notify", "wake"])
def test_it_is_woken(ready: StartMaintenance, rows: WaitingRows, how: str, prefix: str) -> None:
    maintenance = ready(prefix, claim_pause=3600.0)
    [(begun,)] = rows.query("SELECT clock_timestamp()")
    maintenance.send(WantRows(1, 10, {}, []))
    looked = (
        "SELECT 1 FROM pg_stat_activity WHERE application_name = %s AND state = 'idle'"
        " AND query_start > %s"
    )
    eventually(lambda: rows.query(looked, f"oncepool maintenance {prefix}", begun))
    rows.add("x")
    if how == "notify":
        rows.query("SELECT pg_notify(%s, '')", due_channel(rows.schema))
    else:
        maintenance.send(RowDueIn(0.0))
    assert due(maintenance) == ["x"]


def test_two_processes_claim_distinct_rows(ready: StartMaintenance, rows: WaitingRows) -> None:
    rows.add_many(400)
    one, two = ready("one"), ready("two")
    for maintenance in (one, two):
        maintenance.send(WantRows(1, 100, {}, []))
    taken = [due(maintenance) for maintenance in (one, two)]
    assert [len(part) for part in taken] == [100, 100]
    assert not set(taken[0]) & set(taken[1])


def test_rows_of_a_claim_whose_answer_was_lost_are_claimed_again_at_once(
    ready: StartMaintenance, rows: WaitingRows, proxy: Proxy, through: str
) -> None:
    """Nobody has them in hand, so nothing crashed with them."""
    rows.add(*[f"r{n}" for n in range(5)])
    maintenance = ready(database_url=through)
    turn(maintenance, 1)
    proxy.wish(commit_after(CLAIM_DUE))
    maintenance.send(WantRows(1, 10, {}, []))
    assert sorted(due(maintenance, timeout=30)) == [f"r{n}" for n in range(5)]
    assert proxy.lost == 1
    assert rows.query(f"SELECT DISTINCT token, crashes FROM {rows.schema}.requests") == [
        ("here:1", 0)
    ]


def test_claims_go_on_while_others_keep_what_is_to_be_given_back_locked(
    ready: StartMaintenance, rows: WaitingRows, stack: Stack
) -> None:
    """One transaction that stays open, as an operator's, has rows of forty references locked."""
    maintenance = ready()
    names = [f"old-{n}" for n in range(40)]
    for n, name in enumerate(names):
        reference(rows, name, key=f"k{n}", token="here:1", due_in=3000)
        reference(rows, f"new-{n}", key=f"k{n}", produced_in=-1, due_in=3000)
    with psycopg.connect(stack.database) as other:
        other.execute(
            f"SELECT FROM {rows.schema}.requests WHERE id LIKE 'new-%' FOR UPDATE".encode()
        )
        maintenance.send(ReleaseClaims([(name, 1) for name in names], []))
        rows.add("due", type="other")
        maintenance.send(WantRows(2, 10, {}, []))
        assert due(maintenance, timeout=60) == ["due"]
        assert maintenance.received(DatabaseState) == []


def test_what_the_process_before_had_claimed_and_nobody_has_is_given_back(
    ready: StartMaintenance, rows: WaitingRows
) -> None:
    """It died before it handed rows over, or gave some back."""
    rows.add("kept", "older", token="here:1", due_in=50)
    rows.add("stray", token="here:2", due_in=50)
    rows.add("later", token="here:3", due_in=50)
    rows.add("other's", token="there:1", due_in=50)
    rows.query(f"UPDATE {rows.schema}.requests SET lease_until = due_at, not_before = now()")
    maintenance = ready()
    maintenance.send(RenewClaims([("kept", 1)], 2))
    free = f"SELECT id FROM {rows.schema}.requests WHERE token IS NULL AND due_at <= now()"
    eventually(lambda: rows.query(f"{free} ORDER BY id") == [("older",), ("stray",)])
    maintenance.send(WantRows(4, 10, {}, []))
    assert sorted(due(maintenance)) == ["older", "stray"]
    assert rows.columns("stray", "token", "crashes", "lost_claims") == ("here:4", 0, 0)


def says(maintenance: MaintenanceProcess, *, up: bool) -> None:
    """Waits until its last word on the database is this one."""
    eventually(lambda: [state.up for state in maintenance.received(DatabaseState)[-1:]] == [up])


def test_who_is_back_first_after_an_outage_takes_nobody_for_dead(
    ready: StartMaintenance, rows: WaitingRows, proxy: Proxy, through: str, stack: Stack
) -> None:
    """It lasted longer than a lease, so nobody could renew any."""
    rows.add("row")
    rows.add("call", state="running", type="call", effect="external", due_in=0.0)
    rows.query(
        f"UPDATE {rows.schema}.requests SET token = 'chunk', due_at = NULL,"
        " lease_until = now() + interval '1 min' WHERE id = 'call'"
    )
    with Proxy.of(stack.database) as own:
        one = ready("one", database_url=own.before(stack.database), sweep_interval=0.1)
        two = ready("two", database_url=through, sweep_interval=0.1)
        two.send(WantRows(1, 10, {}, []))
        assert due(two) == ["row"]
        for line, maintenance in ((own, one), (proxy, two)):
            line.cut()
            maintenance.send(ProbeDatabase())
            says(maintenance, up=False)
        two.send(RenewClaims([("row", 1)]))
        two.send(RenewCalls(["chunk"]))
        rows.query(f"UPDATE {rows.schema}.requests SET lease_until = now() - interval '1 s'")
        rows.expire("row")
        own.mend()
        says(one, up=True)
        one.send(WantRows(1, 10, {}, []))
        turn(one, len(one.received(DatabaseState)) + 1)
        turn(one, len(one.received(DatabaseState)) + 1)
        proxy.mend()
        says(two, up=True)
        held = "SELECT id FROM {}.requests WHERE lease_until > now() ORDER BY id"
        eventually(lambda: rows.query(held.format(rows.schema)) == [("call",), ("row",)])

    assert rows.columns("row", "token", "crashes") == ("two:1", 0)
    assert rows.columns("call", "state", "crashes") == ("running", 0)


def test_limits_and_paused_types_of_a_want(ready: StartMaintenance, rows: WaitingRows) -> None:
    rows.add("a1", "a2", type="a")
    rows.add("b", type="b")
    maintenance = ready()
    maintenance.send(WantRows(1, 10, {"a": 1}, ["b"]))
    assert due(maintenance) == ["a1"]


def test_renewed_it_stays_claimed_and_released_it_is_taken_at_once(
    ready: StartMaintenance, rows: WaitingRows
) -> None:
    rows.add("kept", "given back")
    one, two = ready("one"), ready("two")
    one.send(WantRows(1, 10, {}, []))
    assert len(due(one)) == 2
    two.send(WantRows(1, 10, {}, []))
    rows.query(f"UPDATE {rows.schema}.requests SET due_at = now() + interval '2 s'")
    one.send(RenewClaims([("kept", 1), ("given back", 1)]))
    eventually(lambda: rows.columns("kept", "due_in")[0] > 50)
    one.send(ReleaseClaims([("given back", 1)], []))
    assert due(two) == ["given back"]
    assert rows.columns("given back", "token", "crashes") == ("two:1", 0)
    assert rows.columns("kept", "token") == ("one:1",)


def test_releases_wait_for_the_database(
    ready: StartMaintenance, rows: WaitingRows, proxy: Proxy, through: str
) -> None:
    rows.add("x")
    maintenance = ready(database_url=through)
    maintenance.send(WantRows(1, 10, {}, []))
    assert due(maintenance) == ["x"]
    proxy.cut()
    # The end of its connection is noticed without a statement.
    assert not maintenance.wait_for(DatabaseState, 1).up
    maintenance.send(ReleaseClaims([("x", 1)], []))
    proxy.mend()
    assert maintenance.wait_for(DatabaseState, 2).up
    eventually(lambda: rows.columns("x", "token") == (None,))
    assert rows.columns("x", "crashes") == (0,)


def test_what_is_superseded_on_the_way_is_told(
    ready: StartMaintenance, rows: WaitingRows, statuses: RedisStatusStore
) -> None:
    rows.add("old", coalesce_key="k")
    maintenance = ready()
    maintenance.send(WantRows(1, 10, {}, []))
    due(maintenance)
    rows.add("new", coalesce_key="k", produced_in=-1.0)
    maintenance.send(ReleaseClaims([("old", 1)], []))
    eventually(lambda: state_of(statuses, "old") == ("superseded", "superseded"))
    maintenance.send(WantRows(2, 10, {}, []))
    assert due(maintenance, 2) == ["new"]


def test_what_was_told_to_run_and_is_given_back_is_told_to_wait(
    ready: StartMaintenance, rows: WaitingRows, statuses: RedisStatusStore
) -> None:
    rows.add("begun", "unstarted")
    maintenance = ready()
    maintenance.send(WantRows(1, 10, {}, []))
    maintenance.wait_for(DueRows)
    for name in ("begun", "unstarted"):
        running = StatusFields(name, "effect", State.RUNNING, 1, "ok", 1, datetime.now(UTC))
        statuses.write([StatusWrite.of(running)])
    maintenance.send(ReleaseClaims([("unstarted", 1)], []))
    maintenance.send(ReleaseClaims([("begun", 1)], [], True))
    eventually(lambda: state_of(statuses, "begun") == ("waiting", "delayed"))
    [status] = statuses.read(["begun"])
    assert status is not None
    assert rows.columns("begun", "run", "token") == (status.run, None)
