"""What had not started at the end of an instance: parked or refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from feedback.contract.record import CLAIM, Record, claim_of
from feedback.contract.states import State
from feedback.status.redis_store import RedisStatusStore
from feedback.status.status import StatusFields, StatusWrite
from processing.ipc.frames import (
    DatabaseState,
    DueRows,
    Park,
    PartAnswered,
    Refuse,
    ReleaseClaims,
    WantRows,
)
from stack import Stack
from tests.support.maintenance import MaintenanceProcess, StartMaintenance, counters, state_of
from tests.support.proxy import Proxy, commit_after
from tests.support.waiting import eventually
from tests.support.waiting_rows import WaitingRows

PARK = b".requests ("
"""In the statement that parks, and in no other of these tests."""


def message(number: int, *headers: tuple[str, bytes | None], name: str | None = None) -> Record:
    pairs: list[tuple[str, bytes | None]] = [
        ("ce_id", (name or f"r-{number}").encode()), ("ce_type", b"pay"), *headers,
    ]  # fmt: skip
    return ("requests", 0, number, 1_700_000_000_000, b"k", b'{"n":1}', pairs, "pay", None)


def due(maintenance: MaintenanceProcess, count: int = 1, timeout: float = 60.0) -> list[str]:
    """The ids of the frame number `count` of due rows."""
    frame = maintenance.wait_for(DueRows, count, timeout)
    assert all(record[CLAIM] == frame.order for record, _ in frame.rows)
    return [claim_of(record)[0] for record, _ in frame.rows]


def test_parked_records_are_waiting_rows_that_another_instance_takes(
    ready: StartMaintenance, rows: WaitingRows, statuses: RedisStatusStore
) -> None:
    one, two = ready("one"), ready("two")
    two.send(WantRows(1, 10, {}, []))
    hour = datetime.now(UTC) + timedelta(hours=1)
    later = message(2, ("ce_notbefore", hour.isoformat().encode()))
    one.send(Park(7, "parked", [message(1, ("x", b"y")), later], [], [], []))
    assert one.wait_for(PartAnswered)[:2] == (7, 2)
    [(record, verdict)] = two.wait_for(DueRows).rows
    assert verdict is None
    assert record[:1] + record[3:] == (
        "requests", 1_700_000_000_000, b"k", b'{"n":1}',
        [("ce_id", b"r-1"), ("ce_type", b"pay"), ("x", b"y")], "pay", 1,
    )  # fmt: skip
    columns = ("state", "code", "run", "attempt", "used", "topic", "partition", "kafka_offset")
    assert rows.columns("r-1", *columns) == (
        "waiting", "parked", 1, 1, 0, "requests", 0, 1,
    )  # fmt: skip
    assert rows.columns("r-2", "state", "run", "not_before = due_at") == ("waiting", 0, True)
    eventually(lambda: state_of(statuses, "r-1") == ("waiting", "parked"))
    [status] = statuses.read(["r-2"])
    assert status is not None
    assert status.retry_at is not None
    assert abs(status.retry_at - hour) < timedelta(seconds=1)


def test_a_structured_message_is_kept_as_a_binary_one(
    ready: StartMaintenance, rows: WaitingRows
) -> None:
    event = b'{"specversion":"1.0","id":"s-1","type":"pay","source":"x","data":{"n":2}}'
    headers: list[tuple[str, bytes | None]] = [
        ("content-type", b"application/cloudevents+json"), ("trace", b"t"),
    ]  # fmt: skip
    record: Record = ("requests", 0, 5, 1_700_000_000_000, None, event, headers, None, None)
    one = ready()
    one.send(Park(1, "parked", [record], [], [], []))
    one.wait_for(PartAnswered)
    one.send(WantRows(1, 10, {}, []))
    [(due_record, _)] = one.wait_for(DueRows).rows
    assert due_record[5] == b'{"n":2}'
    assert dict(due_record[6])["trace"] == b"t"
    assert "content-type" not in dict(due_record[6])


def test_a_park_leaves_rows_that_are_there(
    ready: StartMaintenance, rows: WaitingRows, statuses: RedisStatusStore
) -> None:
    rows.add("r-1", type="pay", state="done", code="ok", due_in=0.0, payload=None)
    maintenance = ready()
    maintenance.send(Park(1, "parked", [message(n) for n in (1, 3, 3)], [], [], []))
    eventually(lambda: sum(frame.answered for frame in maintenance.received(PartAnswered)) == 3)
    assert rows.states() == {"r-1": "done", "r-3": "waiting"}
    eventually(lambda: state_of(statuses, "r-1") == ("done", "ok"))
    # It is a copy that was answered.
    eventually(lambda: rows.columns("r-1", "resends") == (1,))
    eventually(lambda: state_of(statuses, "r-3") == ("waiting", "parked"))


def test_a_resend_of_a_failed_request_waits_and_its_producer_is_told(
    ready: StartMaintenance, rows: WaitingRows, statuses: RedisStatusStore
) -> None:
    failed: dict[str, Any] = {
        "state": "failed", "code": "handler_error", "type": "pay", "run": 2, "due_in": 0.0,
        "payload": b'{"n": 1}',
    }  # fmt: skip
    rows.add("r-1", **failed)
    rows.add("r-2", coalesce_key="k", **failed)
    rows.add("r-3", fingerprint=b"another", **failed)
    rows.add("newer", type="pay", due_in=60.0, produced_in=-1.0, coalesce_key="k")
    old = StatusFields(
        "r-1", "pay", State.FAILED, 2, code="handler_error", attempt=1, at=datetime.now(UTC)
    ).encode()
    statuses.write([StatusWrite("r-1", old, 60)])
    maintenance = ready()
    records = [message(n) for n in (1, 2, 3)]
    maintenance.send(Park(1, "parked", records, [], [], [], comparable={"pay": True}))
    eventually(lambda: sum(frame.answered for frame in maintenance.received(PartAnswered)) == 3)
    letters = rows.query(f"SELECT request_id, reason FROM {rows.schema}.dead_letters")
    assert (letters, rows.states()["r-3"]) == ([("r-3", "conflict")], "failed")
    eventually(lambda: state_of(statuses, "r-1") == ("waiting", "parked"))
    eventually(lambda: state_of(statuses, "r-2") == ("superseded", "superseded"))
    [status] = statuses.read(["r-1"])
    assert status is not None
    assert status.run == 3
    maintenance.send(WantRows(1, 10, {}, []))
    [(record, verdict)] = maintenance.wait_for(DueRows).rows
    assert (claim_of(record)[0], record[5], verdict) == ("r-1", b'{"n": 1}', None)
    assert rows.columns("r-1", "run", "resends") == (4, 0)


def test_a_park_does_not_wait_for_an_executor_that_writes_the_same_id(
    ready: StartMaintenance, rows: WaitingRows, stack: Stack
) -> None:
    maintenance = ready()
    with psycopg.connect(stack.database) as executor:
        executor.execute(
            f"INSERT INTO {rows.schema}.requests (id, type, state, code, effect, topic, partition,"
            " kafka_offset, produced_at) VALUES ('r-5', 'pay', 'done', 'ok', 'transaction',"
            " 'requests', 0, 5, now())".encode()
        )
        maintenance.send(Park(1, "parked", [message(n) for n in range(10)], [], [], []))
        eventually(lambda: sum(f.answered for f in maintenance.received(PartAnswered)) == 10)
        assert len(rows.states()) == 9
    assert rows.states()["r-5"] == "done"


def test_malformed_messages_and_those_of_decoders_become_dead_letters(
    ready: StartMaintenance, rows: WaitingRows
) -> None:
    maintenance = ready()
    broken: Record = ("requests", 0, 1, 0, None, b"{}", [("ce_type", b"pay")], "pay", None)
    foreign: Record = ("foreign", 0, 2, 0, None, b"<xml/>", [], None, None)
    maintenance.send(Park(1, "parked", [broken, foreign, message(3)], ["foreign"], [], []))
    eventually(lambda: sum(frame.answered for frame in maintenance.received(PartAnswered)) == 3)
    letters = rows.query(f"SELECT topic, detail FROM {rows.schema}.dead_letters ORDER BY topic")
    assert [topic for topic, _ in letters] == ["foreign", "requests"]
    assert "undecoded" in letters[0][1]
    assert rows.states() == {"r-3": "waiting"}


def test_suspects_are_parked_once_their_backend_is_gone(
    ready: StartMaintenance, rows: WaitingRows, stack: Stack, statuses: RedisStatusStore
) -> None:
    maintenance = ready()
    rows.add("r-2", type="pay", state="done", code="ok", due_in=0.0)
    with psycopg.connect(stack.database) as dead:
        backend = dead.execute(
            "SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()"
        ).fetchone()
        dead.execute(
            f"INSERT INTO {rows.schema}.requests (id, type, state, code, effect, topic, partition,"
            " kafka_offset, produced_at) VALUES ('r-1', 'pay', 'done', 'ok', 'transaction',"
            " 'requests', 0, 1, now())".encode()
        )
        maintenance.send(
            Park(1, "parked", [message(1), message(2)], [], [(2, 1), (0, 0)], [backend])
        )
        eventually(lambda: sum(frame.answered for frame in maintenance.received(PartAnswered)) == 2)
        with pytest.raises(psycopg.OperationalError):
            dead.execute("SELECT 1")
    assert rows.columns("r-1", "state", "run", "crashes") == ("waiting", 2, 1)
    assert rows.states()["r-2"] == "done"
    eventually(lambda: state_of(statuses, "r-2") == ("done", "ok"))


def test_without_a_database_parked_records_are_refused(
    ready: StartMaintenance,
    rows: WaitingRows,
    proxy: Proxy,
    through: str,
    statuses: RedisStatusStore,
) -> None:
    maintenance = ready(database_url=through)
    proxy.cut()
    maintenance.send(Park(1, "parked", [message(1)], [], [], []))
    assert maintenance.wait_for(PartAnswered)[:2] == (1, 1)
    maintenance.send(Park(2, "parked", [message(2)], [], [(1, 1)], []))
    assert maintenance.wait_for(PartAnswered, 2)[:2] == (2, 1)
    eventually(lambda: state_of(statuses, "r-1") == ("failed", "shutdown"))
    assert state_of(statuses, "r-2") is None
    assert rows.states() == {}


def test_what_was_parked_is_not_refused_where_the_answer_was_lost(
    ready: StartMaintenance,
    rows: WaitingRows,
    proxy: Proxy,
    through: str,
    statuses: RedisStatusStore,
) -> None:
    """The park of the first half has landed; of the second nothing was written."""
    # One that is locked out has the park tried in halves.
    rows.query(
        f"ALTER TABLE {rows.schema}.requests ADD CONSTRAINT no_7 CHECK (id <> 'r-7' OR run > 0)"
    )
    maintenance = ready(database_url=through)
    proxy.wish(commit_after(PARK))
    maintenance.send(Park(1, "parked", [message(n) for n in range(8)], [], [], []))

    eventually(lambda: sum(frame.answered for frame in maintenance.received(PartAnswered)) == 8)
    assert proxy.lost == 1
    assert sorted(rows.states()) == [f"r-{n}" for n in range(7)]
    assert rows.query(f"SELECT DISTINCT resends FROM {rows.schema}.requests") == [(0,)]
    eventually(lambda: state_of(statuses, "r-7") == ("failed", "shutdown"))
    parked = {f"r-{n}": ("waiting", "parked") for n in range(7)}
    eventually(lambda: {name: state_of(statuses, name) for name in parked} == parked)


@pytest.mark.parametrize("limited", [True, False])
def test_what_may_be_parked_is_not_refused_at_an_end_without_the_database(
    ready: StartMaintenance,
    rows: WaitingRows,
    proxy: Proxy,
    through: str,
    statuses: RedisStatusStore,
    limited: bool,
) -> None:
    maintenance = ready(database_url=through)
    proxy.wish(commit_after(PARK), cut=True)
    maintenance.send(Park(1, "parked", [message(1)], [], [], [], limited))

    assert not maintenance.wait_for(DatabaseState).up
    if limited:
        assert maintenance.stop() == 0
    else:  # the instance waits for the answer before it says stop
        maintenance.wait_for(PartAnswered)
    assert [told[:2] for told in maintenance.received(PartAnswered)] == [(1, 1)]
    assert rows.states() == {"r-1": "waiting"}
    assert state_of(statuses, "r-1") is None


@pytest.mark.parametrize("landed", [True, False])
def test_what_may_be_parked_for_its_limits_waits_for_the_database(
    ready: StartMaintenance,
    rows: WaitingRows,
    proxy: Proxy,
    through: str,
    statuses: RedisStatusStore,
    landed: bool,
) -> None:
    """The database goes down in the middle of the park's COMMIT and stays away for a while."""
    if not landed:
        _end_sessions_at_commit(rows)
    maintenance = ready(database_url=through)
    proxy.wish(commit_after(PARK), cut=True)
    maintenance.send(Park(1, "parked", [message(1), message(2)], [], [], [], True))
    assert not maintenance.wait_for(DatabaseState).up
    assert sorted(rows.states()) == (["r-1", "r-2"] if landed else [])

    # What comes now is refused, and by then all that came before has had its turn.
    maintenance.send(Park(2, "parked", [message(3)], [], [], [], True))
    assert maintenance.wait_for(PartAnswered)[:2] == (2, 1)
    eventually(lambda: state_of(statuses, "r-3") == ("failed", "database_unavailable"))
    assert statuses.read(["r-1", "r-2"]) == [None, None]

    rows.query(f"DROP TRIGGER IF EXISTS ends ON {rows.schema}.requests")
    proxy.mend()
    assert maintenance.wait_for(PartAnswered, 2)[:2] == (1, 2)
    assert rows.states() == {"r-1": "waiting", "r-2": "waiting"}
    eventually(lambda: {state_of(statuses, f"r-{n}") for n in (1, 2)} == {("waiting", "parked")})


def _end_sessions_at_commit(rows: WaitingRows) -> None:
    """Whoever writes rows from now on loses its session in COMMIT, and with it what it wrote."""
    rows.query(
        f"CREATE FUNCTION {rows.schema}.ends() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END'"
    )
    rows.query(
        f"CREATE CONSTRAINT TRIGGER ends AFTER INSERT ON {rows.schema}.requests"
        f" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {rows.schema}.ends()"
    )


def test_what_was_parked_is_not_refused_where_its_neighbours_cannot_be_looked_up(
    ready: StartMaintenance, rows: WaitingRows, stack: Stack, statuses: RedisStatusStore
) -> None:
    rows.add("r-1", type="pay", state="done", code="ok", due_in=0.0, payload=None)
    rows.query(f"UPDATE {rows.schema}.requests SET state = 'novel'")  # of a newer version
    maintenance = ready()

    maintenance.send(Park(1, "parked", [message(1), message(2)], [], [], [], True))

    eventually(lambda: sum(frame.answered for frame in maintenance.received(PartAnswered)) == 2)
    eventually(lambda: state_of(statuses, "r-1") == ("failed", "database_unavailable"))
    assert state_of(statuses, "r-2") == ("waiting", "parked")
    assert rows.states() == {"r-1": "novel", "r-2": "waiting"}
    assert eventually(lambda: counters(stack, rows.schema)) == {
        ("pay", "failed", "database_unavailable"): 1, ("pay", "waiting", "parked"): 1,
    }  # fmt: skip


def test_at_the_end_parks_and_releases_are_done_and_nothing_is_claimed(
    ready: StartMaintenance, rows: WaitingRows, statuses: RedisStatusStore
) -> None:
    rows.add("x", "begun")
    rows.add("old", coalesce_key="k")
    maintenance = ready()
    maintenance.send(WantRows(1, 10, {}, []))
    assert sorted(due(maintenance)) == ["begun", "old", "x"]
    rows.add("new", coalesce_key="k", produced_in=-1.0)
    maintenance.send(ReleaseClaims([("x", 1), ("old", 1)], []))
    maintenance.send(ReleaseClaims([("begun", 1)], [], True))
    maintenance.send(Park(1, "parked", [message(1)], [], [], []))
    maintenance.send(WantRows(2, 10, {}, []))
    assert maintenance.stop() == 0
    tokens = dict(rows.query(f"SELECT id, token FROM {rows.schema}.requests"))
    assert set(tokens) == {"x", "begun", "old", "new", "r-1"}
    assert tokens["r-1"] is None
    assert state_of(statuses, "r-1") == ("waiting", "parked")
    assert state_of(statuses, "begun") == ("waiting", "delayed")
    assert state_of(statuses, "old") == ("superseded", "superseded")


def test_what_is_refused_at_the_end_without_a_database_is_told(
    ready: StartMaintenance, rows: WaitingRows, proxy: Proxy, through: str,
    statuses: RedisStatusStore,
) -> None:  # fmt: skip
    maintenance = ready(database_url=through)
    proxy.cut()
    maintenance.send(Park(1, "parked", [message(1)], [], [], []))
    assert maintenance.stop() == 0
    assert [told[:2] for told in maintenance.received(PartAnswered)] == [(1, 1)]
    assert state_of(statuses, "r-1") == ("failed", "shutdown")
    assert rows.states() == {}


def test_database_work_that_does_not_end_keeps_no_status_back_and_is_named(
    ready: StartMaintenance,
    proxy: Proxy,
    through: str,
    statuses: RedisStatusStore,
    capfd: pytest.CaptureFixture[str],
) -> None:
    maintenance = ready(database_url=through, hung_after=3600.0)
    proxy.hang()
    maintenance.send(Park(1, "parked", [message(1)], [], [], []))
    maintenance.send(Refuse(2, "shutdown", [message(2)], []))
    assert maintenance.stop() == 0
    assert state_of(statuses, "r-2") == ("failed", "shutdown")
    text = capfd.readouterr()
    assert "last work in the database has not ended" in text.out + text.err


def test_times_and_names_that_no_database_takes_stop_no_neighbour(
    ready: StartMaintenance, rows: WaitingRows
) -> None:
    """A producer whose clock counts microseconds, the last hour there is, a NUL in a header."""
    late = message(2, ("ce_time", b"9999-12-31T23:59:59-01:00"))
    micros = (*message(3)[:3], 1_700_000_000_000_000, *message(3)[4:])
    odd = message(4, ("x\0y", b"1"))
    maintenance = ready()

    maintenance.send(Park(1, "parked", [message(1), late, micros, odd], [], [], []))

    eventually(lambda: sum(frame.answered for frame in maintenance.received(PartAnswered)) == 4)
    assert rows.states() == dict.fromkeys(("r-1", "r-2", "r-3", "r-4"), "waiting")
    maintenance.send(WantRows(1, 10, {}, []))
    assert sorted(due(maintenance)) == ["r-1", "r-2", "r-3", "r-4"]


def test_a_request_that_the_database_refuses_stops_no_neighbour(
    ready: StartMaintenance, rows: WaitingRows, statuses: RedisStatusStore
) -> None:
    rows.query(f"ALTER TABLE {rows.schema}.requests ADD CONSTRAINT no_2 CHECK (id <> 'r-2')")
    maintenance = ready()

    maintenance.send(Park(1, "parked", [message(n) for n in range(500)], [], [], []))

    eventually(lambda: sum(frame.answered for frame in maintenance.received(PartAnswered)) == 500)
    assert len(rows.states()) == 499
    eventually(lambda: state_of(statuses, "r-2") == ("failed", "shutdown"))
    assert state_of(statuses, "r-3") == ("waiting", "parked")
    assert maintenance.received(DatabaseState) == []


def test_a_row_that_cannot_be_read_stops_no_claim_and_its_producer_is_told(
    ready: StartMaintenance, rows: WaitingRows, statuses: RedisStatusStore
) -> None:
    rows.add("a", "b", "c")
    rows.query(f"UPDATE {rows.schema}.requests SET produced_at = 'infinity' WHERE id = 'a'")
    rows.query(f"UPDATE {rows.schema}.requests SET headers = '7' WHERE id = 'c'")
    maintenance = ready()
    maintenance.send(WantRows(1, 10, {}, []))
    assert sorted(due(maintenance)) == ["a", "b"]
    eventually(lambda: state_of(statuses, "c") == ("dead", "malformed"))


@pytest.mark.long
def test_a_backlog_that_is_parked_keeps_no_claim_waiting(
    ready: StartMaintenance, rows: WaitingRows
) -> None:
    maintenance = ready()
    rows.add("due")
    parts = 40
    for part in range(parts):
        some = [message(part * 500 + n) for n in range(500)]
        maintenance.send(Park(part, "parked", some, [], [], []))
        if part == 0:
            maintenance.send(WantRows(1, 1, {}, []))
    maintenance.wait_for(DueRows)
    answered = len(maintenance.received(PartAnswered))
    maintenance.wait_for(PartAnswered, parts)
    assert answered < parts, "it was claimed after all was parked"
