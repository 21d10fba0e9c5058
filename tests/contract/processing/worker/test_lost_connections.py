"""Connections that end and locks that close a circle: done, not raised by hand."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import psycopg
import pytest

from feedback.journal.halving import LOSSES
from processing import App, Request
from processing.handlers.stopping import STOPPING
from processing.ipc.frames import Suspect
from processing.worker import bad_luck, outages
from processing.worker.session import Session
from tests.support.executor import Bench
from tests.support.own_database import OwnDatabase
from tests.support.proxy import Link, Proxy
from tests.support.waiting import eventually

SCHEMA = "journal"
SOON = "?options=-c%20deadlock_timeout%3D50ms"
"""For the one that is to notice the deadlock; the others take their time."""


WAITS = (
    "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
)
"""Whether a server process waits for a lock."""


class Hooks:
    """What handlers do besides when a request is entered first; ids in order of entry."""

    def __init__(self) -> None:
        self.entered: list[str] = []
        self.act: dict[str, Callable[[], None]] = {}
        self.failing: set[str] = set()

    def enter(self, request: Request[Any]) -> None:
        self.entered.append(request.id)
        if act := self.act.pop(request.id, None):
            act()
        if request.id in self.failing:
            raise ValueError("not this time")


def make_app(hooks: Hooks) -> App:
    app = App()

    @app.handler("pay")
    def pay(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        tx.execute(f"INSERT INTO {SCHEMA}.effects VALUES (%s)", (request.id,))
        hooks.enter(request)

    @app.handler("move")
    def move(row: int, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        tx.execute(f"UPDATE {SCHEMA}.accounts SET n = n + 1 WHERE id = %s", (row,))
        tx.execute(f"INSERT INTO {SCHEMA}.effects VALUES (%s)", (request.id,))
        hooks.enter(request)

    @app.handler("charge", effect="external")
    def charge(payload: Any, request: Request[Any]) -> str:
        hooks.enter(request)
        return "charged"

    @app.handler("charge.tx", effect="external")
    def charge_tx(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> str:
        tx.execute(f"INSERT INTO {SCHEMA}.effects VALUES (%s)", (request.id,))
        hooks.enter(request)
        return "charged"

    @app.handler("render")
    def render(payload: Any, request: Request[Any]) -> str:
        hooks.enter(request)
        return "rendered"

    return app


@pytest.fixture
def hooks() -> Hooks:
    return Hooks()


@pytest.fixture
def wire(own_database: OwnDatabase) -> Iterator[Proxy]:
    """Stands before the test's own database."""
    with Proxy.of(own_database.url) as made:
        yield made


@pytest.fixture
def bench(own_database: OwnDatabase, wire: Proxy, hooks: Hooks) -> Iterator[Bench]:
    from feedback.journal.migrations import migrate

    migrate(own_database.url, SCHEMA)
    with psycopg.connect(own_database.url, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {SCHEMA}.effects (id text)".encode())
        connection.execute(f"CREATE TABLE {SCHEMA}.accounts (id int, n int DEFAULT 0)".encode())
        connection.execute(f"INSERT INTO {SCHEMA}.accounts VALUES (1), (2), (3)".encode())
    made = Bench(make_app(hooks), own_database.url, SCHEMA)
    made.executor = made.another(wire.before(own_database.url))
    yield made
    made.executor.close()
    made.app.stop_worker()


def payments(bench: Bench, *ids: str) -> list[Any]:
    return [bench.record(name, "pay", {}) for name in ids]


def test_a_commit_whose_answer_is_lost_is_unclear_and_then_looked_up(
    bench: Bench, wire: Proxy, hooks: Hooks
) -> None:
    bench.run(*payments(bench, "warm"))
    records = payments(bench, "a", "b")
    wire.lose_answer(b"COMMIT\0")
    report = bench.run(*records)
    assert wire.lost == 1
    assert sorted([*report.unclear]) == [0, 1]
    assert [status["id"] for status in bench.statuses] == ["warm"], "nobody knows, nobody is told"
    for record in records:
        bench.run(record, suspect=Suspect(None, (), ()))
    assert (bench.state("a"), bench.state("b")) == (("done", "ok"), ("done", "ok"))
    assert bench.effects() == ["a", "b", "warm"]
    assert hooks.entered == ["warm", "a", "b"]


def test_a_resend_is_counted_once_though_nobody_knew_whether_its_answer_was_committed(
    bench: Bench, wire: Proxy
) -> None:
    bench.run(*payments(bench, "a", "b"))
    copies = payments(bench, "a", "b")
    wire.lose_answer(b"COMMIT\0")
    assert sorted(bench.run(*copies).unclear) == [0, 1]
    assert wire.lost == 1
    bench.run(copies[0], suspect=Suspect(None, (), ()))
    bench.run(*payments(bench, "b"))
    bench.run(copies[0])  # read again, not sent again
    found = bench.query(f"SELECT id, resends FROM {SCHEMA}.requests ORDER BY id")
    assert found == [("a", 1), ("b", 2)]
    assert (bench.state("a"), bench.state("b")) == (("done", "ok"), ("done", "ok"))


def cut_while_it_waits(bench: Bench, wire: Proxy, record: Any) -> None:
    """Runs it, loses its connection once its server process waits for a lock, and sees its end."""
    with psycopg.connect(bench.url, autocommit=True) as looker:
        thread = threading.Thread(target=bench.run, args=(record,))
        thread.start()
        eventually(lambda: looker.execute(WAITS.encode()).fetchall())
        wire.cut()
        wire.mend()
        thread.join(60)


class Refusing(Proxy):
    """Breaks each connection whose client says a word."""

    word = b"poison"
    refused = 0

    def _look_at_requests(self, link: Link, units: list[bytes]) -> None:
        super()._look_at_requests(link, units)
        if any(self.word in unit for unit in units):
            self.refused += 1
            link.cut()


@pytest.mark.timeout(120)
def test_a_dead_letter_that_breaks_its_connection_each_time_is_given_up(
    bench: Bench, own_database: OwnDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outages, "REDO_PAUSE", outages.FIRST_PAUSE)
    with Refusing.of(own_database.url) as refusing:
        bench.executor.close()
        bench.executor = bench.another(refusing.before(own_database.url))
        letters = [bench.record(name, None, {}) for name in ("poison", "plain")]
        report = bench.run(*letters, *payments(bench, "a"))
        assert (report.returned, report.unclear, report.database_up) == ([], [], True)
        assert refusing.refused == 2 * LOSSES, "with the other one, and alone"
    assert bench.letters() == [("malformed", "plain")]
    assert bench.state("a") == ("done", "ok")


def test_a_connection_that_ended_while_nothing_ran_is_no_outage(
    bench: Bench, own_database: OwnDatabase, hooks: Hooks
) -> None:
    bench.run(*payments(bench, "warm"))
    assert own_database.end_connections("oncepool worker") == 1
    report = bench.run(*payments(bench, "a", "b"))
    assert (report.unclear, report.returned, report.database_up) == ([], [], True)
    assert (bench.state("a"), bench.state("b")) == (("done", "ok"), ("done", "ok"))
    assert bench.effects() == ["a", "b", "warm"]
    assert hooks.entered == ["warm", "a", "b"]


def test_a_connection_that_ends_under_a_handler_undoes_the_chunk_and_it_is_done_again(
    bench: Bench, own_database: OwnDatabase, hooks: Hooks
) -> None:
    bench.run(*payments(bench, "warm"))
    hooks.act["b"] = lambda: _ended(own_database)
    report = bench.run(*payments(bench, "a", "b", "c"))
    assert (report.unclear, report.database_up) == ([], True)
    assert {bench.state(name) for name in "abc"} == {("done", "ok")}
    assert bench.effects() == ["a", "b", "c", "warm"]
    assert set(bench.rows().values()) == {("done", "ok")}


def test_the_result_of_a_call_outside_survives_a_connection_that_ended_meanwhile(
    bench: Bench, own_database: OwnDatabase, hooks: Hooks
) -> None:
    bench.run(bench.record("warm", "charge", {}))
    hooks.act["a"] = lambda: _ended(own_database)
    report = bench.run(bench.record("a", "charge", {}))
    assert report.database_up
    assert bench.rows()["a"] == bench.state("a") == ("done", "ok")
    assert hooks.entered == ["warm", "a"]


def test_the_result_of_a_call_outside_survives_a_write_that_takes_too_long(
    bench: Bench, hooks: Hooks
) -> None:
    """A disk that stalls, or somebody's lock, for longer than a statement may take."""
    executor = bench.executor = bench.another(bench.url, statement_timeout=0.3)
    freed = threading.Event()

    def lock() -> None:
        with psycopg.connect(bench.url) as other:
            other.execute(f"SELECT FROM {SCHEMA}.requests FOR UPDATE".encode())
            freed.set()
            time.sleep(1)

    holder = threading.Thread(target=lock)

    def begin() -> None:
        holder.start()
        assert freed.wait(60)

    hooks.act["a"] = begin
    report = bench.run(bench.record("a", "charge", {}))
    holder.join(30)
    executor.close()
    assert (report.database_up, bench.rows()["a"], hooks.entered) == (True, ("done", "ok"), ["a"])


@pytest.mark.parametrize("leaving", [False, True])
def test_only_a_worker_that_leaves_is_short_of_time_for_a_call_that_was_told_to_end(
    bench: Bench, wire: Proxy, hooks: Hooks, monkeypatch: pytest.MonkeyPatch,
    leaving: bool,
) -> None:  # fmt: skip
    """Past its time-out, or cancelled, its worker goes on: its lease is what counts."""
    monkeypatch.setattr(outages, "HASTE", 0.0)
    monkeypatch.setattr(outages, "PATIENCE", 0.1)
    mending = threading.Timer(0.5, wire.mend)

    def told_in_an_outage() -> None:
        STOPPING.set()
        STOPPING.leaving = leaving
        wire.cut()
        mending.start()

    hooks.act["c"] = told_in_an_outage
    try:
        report = bench.run(bench.record("c", "charge", {}))
    finally:
        STOPPING.clear()
        mending.join()
    end = ("running", "claimed") if leaving else ("done", "ok")
    assert (bench.rows(), report.database_up) == ({"c": end}, not leaving)


def test_what_a_handler_without_tx_returned_survives_a_connection_that_ended_meanwhile(
    bench: Bench, own_database: OwnDatabase, hooks: Hooks
) -> None:
    """It is idle while they run, which an administrator or a proxy may allow for a minute only."""
    bench.run(bench.record("warm", "render", {}))
    for name in "ac":
        hooks.act[name] = lambda: _ended(own_database)
    report = bench.run(*(bench.record(name, "render", {}) for name in "ab"))
    bench.run(bench.record("c", "render", {}))
    assert (report.unclear, report.returned, report.database_up) == ([], [], True)
    assert {bench.state(name) for name in "abc"} == {("done", "ok")} == {*bench.rows().values()}
    assert hooks.entered == ["warm", "a", "b", "c"]


def test_what_a_handler_without_tx_returned_survives_a_restart_of_the_database(
    bench: Bench, wire: Proxy, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outages, "PATIENCE", 0.1)
    tries, connect = Mock(), Session.connect

    def counted(session: Session) -> None:
        tries()
        if tries.call_count == 20:  # longer than any other work tries for it
            wire.mend()
        connect(session)

    def cut() -> None:
        monkeypatch.setattr(Session, "connect", counted)
        wire.cut()

    hooks.act["a"] = cut
    report = bench.run(*(bench.record(name, "render", {}) for name in "ab"))
    assert (report.returned, report.database_up) == ([], True)
    assert {*bench.rows().values()} == {("done", "ok")}
    assert hooks.entered == ["a", "b"]


def test_a_claim_that_would_land_after_it_was_looked_for_does_not_and_is_made_again(
    bench: Bench, wire: Proxy, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server process waits for something, and goes on once nobody has found its row."""
    bench.query(f"CREATE SEQUENCE {SCHEMA}.claims")
    bench.query(f"""
        CREATE FUNCTION {SCHEMA}.hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('{SCHEMA}.claims') = 1 THEN PERFORM pg_advisory_xact_lock(7); END IF;
            RETURN NULL;
        END $$""")
    bench.query(f"""
        CREATE TRIGGER hold AFTER INSERT ON {SCHEMA}.requests
        FOR EACH ROW EXECUTE FUNCTION {SCHEMA}.hold()""")
    record = bench.record("a", "charge", {})
    not_found = threading.Event()
    with psycopg.connect(bench.url, autocommit=True) as gate:

        def let_go(_tries: int) -> float:
            not_found.set()
            gate.execute("SELECT pg_advisory_unlock(7)")
            eventually(lambda: not bench.query(WAITS))
            return 0.0

        monkeypatch.setattr(bad_luck, "BETWEEN_TRIES", Mock(after=let_go))
        gate.execute("SELECT pg_advisory_lock(7)")
        cut_while_it_waits(bench, wire, record)
    assert not_found.is_set()
    assert (bench.rows(), bench.state("a")) == ({"a": ("done", "ok")}, ("done", "ok"))
    assert hooks.entered == ["a"]


def test_a_call_whose_commit_hangs_in_a_server_process_that_was_lost_is_in_doubt_soon(
    bench: Bench, wire: Proxy, hooks: Hooks
) -> None:
    """It holds the row, and would commit after its lease."""
    bench.query(f"""
        CREATE FUNCTION {SCHEMA}.hold() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS
        $$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END $$""")
    bench.query(f"""
        CREATE CONSTRAINT TRIGGER hold AFTER INSERT ON {SCHEMA}.effects
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {SCHEMA}.hold()""")
    bench.executor.close()
    bench.executor = bench.another(wire.before(bench.url), lock_timeout=0.5, lease=4.0)
    record = bench.record("a", "charge.tx", {})
    with psycopg.connect(bench.url, autocommit=True) as gate:
        gate.execute("SELECT pg_advisory_lock(7)")
        cut_while_it_waits(bench, wire, record)
    assert (bench.rows(), bench.effects()) == ({"a": ("in_doubt", "handler_error")}, [])
    assert bench.state("a") == ("in_doubt", "handler_error")
    assert hooks.entered == ["a"]


def _ended(own_database: OwnDatabase) -> None:
    assert own_database.end_connections("oncepool worker") == 1


class Opponent:
    """Holds a lock, and wants one that the chunk holds, which is about to want the first."""

    def __init__(self, bench: Bench, url: str, holds: str, wants: str) -> None:
        self._bench, self._wants = bench, wants
        self._connection = psycopg.connect(url)
        self._connection.execute(holds.encode())
        self._thread = threading.Thread(target=self._close_the_circle)

    def meet(self) -> None:
        self._thread.start()
        pid = self._connection.info.backend_pid
        waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pid = %s"
        eventually(lambda: self._bench.query(waits, pid))

    def end(self) -> None:
        self._thread.join(30)
        self._connection.close()

    def _close_the_circle(self) -> None:
        self._connection.execute(self._wants.encode())
        self._connection.commit()


def test_a_deadlock_in_a_handler_fails_nobody(
    bench: Bench, own_database: OwnDatabase, hooks: Hooks
) -> None:
    bench.executor.close()
    bench.executor = bench.another(own_database.url + SOON)
    moved = f"UPDATE {SCHEMA}.accounts SET n = n + 1 WHERE id = "
    opponent = Opponent(bench, own_database.url, f"{moved} 2", f"{moved} 1")
    hooks.act["a"] = opponent.meet
    bench.run(*(bench.record(n, "move", row) for n, row in (("a", 1), ("b", 2), ("c", 3))))
    opponent.end()
    assert {bench.state(name) for name in "abc"} == {("done", "ok")}
    assert bench.effects() == ["a", "b", "c"]
    assert bench.query(f"SELECT n FROM {SCHEMA}.accounts ORDER BY id") == [(2,), (2,), (1,)]
    assert hooks.entered.count("a") > 1, "there was no deadlock"


def test_a_deadlock_in_the_journal_fails_nobody(
    bench: Bench, own_database: OwnDatabase, hooks: Hooks
) -> None:
    """The opponent holds the row of a request that had failed and runs again."""
    bench.executor.close()
    bench.executor = bench.another(own_database.url + SOON)
    hooks.failing.add("b")
    again = bench.record("b", "pay", {})
    bench.run(again)
    assert bench.rows() == {"b": ("failed", "handler_error")}
    hooks.failing.clear()
    held = f"SELECT id FROM {SCHEMA}.requests WHERE id = 'b' FOR UPDATE"
    moved = f"UPDATE {SCHEMA}.accounts SET n = n + 1 WHERE id = 1"
    opponent = Opponent(bench, own_database.url, held, moved)
    hooks.act["a"] = opponent.meet
    bench.run(bench.record("a", "move", 1), again, *payments(bench, "c", "d"))
    opponent.end()
    assert set(bench.rows().values()) == {("done", "ok")}
    assert bench.effects() == ["a", "b", "c", "d"]
    assert hooks.entered.count("a") > 1, "there was no deadlock"


def test_two_executors_whose_chunks_lock_each_other_out_both_end_well(
    bench: Bench, own_database: OwnDatabase, hooks: Hooks
) -> None:
    """A deadlock that nobody resolves by ending: both go on, one after the other."""
    both = threading.Barrier(2)
    hooks.act["a1"] = hooks.act["b2"] = lambda: _meet(both)
    url = own_database.url + SOON
    other = copy.copy(bench)
    other.executor = bench.another(url)
    chunks = (
        (bench, [bench.record("a1", "move", 1), bench.record("a2", "move", 2)]),
        (other, [bench.record("b2", "move", 2), bench.record("b1", "move", 1)]),
    )
    threads = [threading.Thread(target=one.run, args=records) for one, records in chunks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    other.executor.close()
    assert set(bench.rows().values()) == {("done", "ok")}
    assert bench.effects() == ["a1", "a2", "b1", "b2"]
    assert bench.query(f"SELECT n FROM {SCHEMA}.accounts WHERE id < 3") == [(2,), (2,)]
    assert len(hooks.entered) > 4, "there was no deadlock"


def test_what_others_keep_locked_is_soon_given_back(
    bench: Bench, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try may take as long as a statement may wait, and its worker with it."""
    monkeypatch.setattr(bad_luck, "LONGEST_REDO", 0.0)
    bench.executor.close()
    bench.executor = bench.another(bench.url, lock_timeout=0.02)
    with psycopg.connect(bench.url) as somebody:
        for name, kind, effect in (("p", "pay", "transaction"), ("c", "charge", "external")):
            somebody.execute(
                f"INSERT INTO {SCHEMA}.requests (id, type, state, code, attempt, run, crashes,"
                " topic, partition, kafka_offset, produced_at, effect)"
                f" VALUES ('{name}', '{kind}', 'done', 'ok', 1, 1, 0, 't', 0, 0, now(), '{effect}')"
            )
        report = bench.run(*payments(bench, "p"), bench.record("c", "charge", {}))
        somebody.rollback()
    assert (sorted(report.returned), report.unclear, hooks.entered) == ([0, 1], [], ["p"])
    bench.run(*payments(bench, "p"), bench.record("c", "charge", {}))
    assert bench.rows() == dict.fromkeys("pc", ("done", "ok"))


def _meet(both: threading.Barrier) -> None:
    both.wait(60)
