"""Work that loses its connection each time keeps no other work waiting."""

from __future__ import annotations

from contextlib import closing

import orjson
import psycopg
import pytest

from feedback.contract.record import Record
from feedback.status.redis_store import RedisStatusStore
from processing.ipc.frames import (
    DatabaseState,
    DueRows,
    EndCalls,
    Park,
    PartAnswered,
    PartStands,
    Refuse,
    RenewClaims,
    WantRows,
)
from stack import Stack
from tests.support.maintenance import MaintenanceProcess, StartMaintenance, record, state_of
from tests.support.proxy import Proxy
from tests.support.waiting import eventually
from tests.support.waiting_rows import WaitingRows


def end_sessions(rows: WaitingRows, table: str, when: str, write: str = "INSERT") -> None:
    """Whoever writes such a row loses the session over that statement."""
    rows.query(
        f"CREATE FUNCTION {rows.schema}.ends() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(60);"
        " RETURN NEW; END'"
    )
    rows.query(
        f"CREATE TRIGGER ends BEFORE {write} ON {rows.schema}.{table} FOR EACH ROW WHEN ({when})"
        f" EXECUTE FUNCTION {rows.schema}.ends()"
    )


def answered(maintenance: MaintenanceProcess, part: int) -> int:
    return sum(told.answered for told in maintenance.received(PartAnswered) if told.part == part)


def renewed(rows: WaitingRows, maintenance: MaintenanceProcess, name: str) -> bool:
    """Whether the lease of a claim is renewed as soon as it is asked for."""
    rows.query(f"UPDATE {rows.schema}.requests SET lease_until = now() WHERE id = '{name}'")
    maintenance.send(RenewClaims([(name, 1)]))
    ahead = f"SELECT lease_until > now() + interval '30 s' FROM {rows.schema}.requests"
    eventually(lambda: rows.query(f"{ahead} WHERE id = '{name}'") == [(True,)])
    return True


def test_a_part_that_breaks_the_connection_each_time_starves_nothing(
    ready: StartMaintenance,
    rows: WaitingRows,
    statuses: RedisStatusStore,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Its neighbours are parked as soon as it is found; it is tried again, and told of."""
    rows.add("due")
    maintenance = ready()
    maintenance.send(WantRows(1, 1, {}, []))
    maintenance.wait_for(DueRows)
    end_sessions(rows, "requests", "NEW.id = 'r-3'")
    maintenance.send(Park(1, "parked", [record(n) for n in range(8)], [], [], [], True))
    maintenance.send(Park(2, "parked", [record(n) for n in range(8, 12)], [], [], [], True))
    assert renewed(rows, maintenance, "due")
    eventually(lambda: answered(maintenance, 2) == 4)
    eventually(lambda: answered(maintenance, 1) == 7)
    parked = {f"r-{n}" for n in range(12) if n != 3}
    assert rows.states().keys() == parked | {"due"}
    assert renewed(rows, maintenance, "due")
    rows.add("later")
    maintenance.send(WantRows(2, 1, {}, ["payment.create"]))
    maintenance.wait_for(DueRows, 2)
    said: list[str] = []
    eventually(lambda: said.append(capfd.readouterr().err) or "are not parked" in "".join(said))
    lines = [orjson.loads(line) for line in "".join(said).splitlines() if "not parked" in line]
    assert {"r-3", "r-0"} & set(lines[0]["first"])
    assert "terminating connection" in lines[0]["error"]
    rows.query(f"DROP TRIGGER ends ON {rows.schema}.requests")
    eventually(lambda: answered(maintenance, 1) == 8)
    eventually(lambda: state_of(statuses, "r-3") == ("waiting", "parked"))
    assert not [told for told in maintenance.received(DatabaseState) if not told.up]


def test_a_dead_letter_that_breaks_the_connection_each_time_starves_nothing(
    ready: StartMaintenance, rows: WaitingRows
) -> None:
    rows.add("due")
    maintenance = ready()
    maintenance.send(WantRows(1, 1, {}, []))
    maintenance.wait_for(DueRows)
    end_sessions(rows, "dead_letters", "NEW.kafka_offset = 3")
    broken: list[Record] = [record(n, headers=[("ce_type", b"pay")]) for n in range(9)]
    maintenance.send(Refuse(1, "shutdown", broken, []))
    maintenance.send(Park(2, "parked", [record(n) for n in range(8, 12)], [], [], [], True))
    assert renewed(rows, maintenance, "due")
    eventually(lambda: answered(maintenance, 2) == 4)
    eventually(lambda: answered(maintenance, 1) == 8)
    kept = rows.query(f"SELECT kafka_offset FROM {rows.schema}.dead_letters ORDER BY 1")
    assert [offset for (offset,) in kept] == [0, 1, 2, 4, 5, 6, 7, 8]
    rows.query(f"DROP TRIGGER ends ON {rows.schema}.dead_letters")
    eventually(lambda: answered(maintenance, 1) == 9)


def test_a_call_that_breaks_the_connection_each_time_starves_no_other(
    ready: StartMaintenance, rows: WaitingRows
) -> None:
    calls = {"type": "charge", "state": "running", "effect": "external", "run": 1}
    for name in ("poison", "good"):
        rows.add(name, token=name, **calls)
    rows.query(f"UPDATE {rows.schema}.requests SET due_at = NULL, lease_until = now() + '1 h'")
    end_sessions(rows, "requests", "NEW.id = 'poison'", "UPDATE")
    maintenance = ready()
    for name in ("poison", "good"):
        maintenance.send(EndCalls({name: "shutdown"}, [], []))
    eventually(lambda: rows.states() == {"poison": "running", "good": "in_doubt"})
    rows.query(f"DROP TRIGGER ends ON {rows.schema}.requests")
    eventually(lambda: rows.states() == {"poison": "in_doubt", "good": "in_doubt"})


@pytest.mark.parametrize("lands", [True, False])
def test_what_a_commit_without_an_answer_may_yet_park_is_looked_up_once_that_is_over(
    ready: StartMaintenance,
    rows: WaitingRows,
    stack: Stack,
    proxy: Proxy,
    through: str,
    statuses: RedisStatusStore,
    lands: bool,
) -> None:
    """Its server process has not noticed that its client is gone, and waits in that COMMIT."""
    schema, key = rows.schema, f"hashtext('{rows.schema}')"
    rows.query(f"CREATE SEQUENCE {schema}.times")
    rows.query(
        f"CREATE FUNCTION {schema}.hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" PERFORM pg_advisory_xact_lock({key});"
        f" IF nextval('{schema}.times') = 1 AND NOT {lands} THEN RAISE 'not this time'; END IF;"
        " RETURN NULL; END $$"
    )
    rows.query(
        f"CREATE CONSTRAINT TRIGGER hold AFTER INSERT ON {schema}.requests DEFERRABLE"
        f" INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}.hold()"
    )
    waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'advisory' AND application_name = %s"
    with closing(psycopg.connect(stack.database)) as holder:
        holder.execute(f"SELECT pg_advisory_xact_lock({key})".encode())
        maintenance = ready(database_url=through)
        maintenance.send(Park(1, "parked", [record(1)], [], [], [], True))
        eventually(lambda: rows.query(waits, "oncepool maintenance here"))
        proxy.cut_connections()
        eventually(lambda: maintenance.received(PartStands) or maintenance.received(PartAnswered))
        assert (maintenance.received(PartAnswered), rows.states()) == ([], {})
    assert maintenance.wait_for(PartAnswered)[:2] == (1, 1)
    assert rows.states() == {"r-1": "waiting"}
    assert rows.query(f"SELECT last_value FROM {schema}.times") == [(1 if lands else 2,)]
    eventually(lambda: state_of(statuses, "r-1") == ("waiting", "parked"))
