"""The whole service on a database whose connections end, and on one that takes no writes."""

from __future__ import annotations

import os
import signal
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from feedback.journal.migrations import migrate
from stack import Stack
from stack.places import free_port
from tests.support.own_database import OwnDatabase
from tests.support.service import WAIT, Bench, Callers
from tests.support.waiting import eventually

WORKER = "oncepool worker"
SESSIONS = """SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE %s"""


@pytest.fixture
def bench(
    stack: Stack, own_database: OwnDatabase, topic: Callable[..., str], prefix: str, group: str,
    tmp_path: Path,
) -> Iterator[Bench]:  # fmt: skip
    migrate(own_database.url, "journal")
    name = topic(partitions=4)
    made = Bench(stack, name, "journal", prefix, group, tmp_path, database=own_database.url)
    yield made
    made.close()


def told(bench: Bench) -> dict[tuple[str, str], int]:
    """How many ends there were, by state and code."""
    rows = bench.query(
        f"SELECT state, code, sum(n)::int FROM {bench.schema}.counters GROUP BY 1, 2"
    )
    return {(state, code): n for state, code, n in rows}


@pytest.mark.long  # the chaos run shows it too
def test_one_connection_after_the_other_ends_under_load(
    bench: Bench, own_database: OwnDatabase, tmp_path: Path
) -> None:
    """The database is there all the time: nobody is sent away, and nothing outside is in doubt."""
    charged = tmp_path / "charged"
    instance = bench.start(ONCEPOOL_WORKERS="3")
    callers = Callers(bench, threads=6, resend_after=2.0)
    callers.answered(50)
    calls: list[str] = []
    ended = 0
    for _ in range(10):
        calls.append(bench.client.submit("charges", {"file": str(charged), "seconds": 0.2}))
        for _ in range(3):
            ended += eventually(lambda: own_database.end_connections(WORKER, most=1))
            callers.answered(5)
    assert ended >= 20
    outside = [bench.client.wait(request, WAIT) for request in calls]
    done = callers.end()
    effects = [row[0] for row in bench.query(f"SELECT id FROM {bench.table}")]
    assert Counter(effects) == dict.fromkeys(done, 1)
    assert bench.states() == {"done": len(done) + len(calls)}
    assert {(status.state, status.code) for status in outside} == {("done", "ok")}
    assert charged.read_text().count("charged") == len(calls)
    assert instance.stop() == 0
    assert {end[0] for end in told(bench)} == {"done"}, instance.log


@pytest.mark.long
def test_all_connections_end_at_once_again_and_again(
    bench: Bench, own_database: OwnDatabase
) -> None:
    instance = bench.start(ONCEPOOL_WORKERS="3")
    callers = Callers(bench, threads=6, resend_after=2.0)
    callers.answered(50)
    ended = 0
    for _ in range(6):
        ended += own_database.end_connections()
        callers.answered(10)
    assert ended >= 12
    bench.check_books(callers.end())
    assert bench.states().keys() == {"done"}
    assert instance.stop() == 0


def test_a_database_that_takes_no_writes_is_away(
    bench: Bench, own_database: OwnDatabase, tmp_path: Path
) -> None:
    entered = tmp_path / "entered"
    instance = bench.start()
    payload = {"table": bench.table, "file": str(entered)}
    ids = [f"noted-{n}" for n in range(300)]
    bench.client.submit("noted", payload, request_id=ids[0])
    assert bench.client.wait(ids[0], WAIT).state == "done"

    own_database.set_read_only(read_only=True)
    for request in ids[1:]:
        bench.client.submit("noted", payload, request_id=request)
    bench.client.flush()
    eventually(lambda: "database" in bench.said()["paused"], WAIT, lambda: instance.log)
    eventually(lambda: bench.said()["in_hand"] <= 10, WAIT, lambda: str(bench.facts()))
    assert instance.health("/readyz")[1]["database"] is False
    # Nothing but a row makes a request wait, and nothing was wrong with any handler.
    found = [status for status in bench.statuses(ids[1:]) if status is not None]
    states = {(status.state, status.code) for status in found if status.state != "accepted"}
    assert states <= {("failed", "database_unavailable")}
    assert max(Counter(entered.read_text().split()).values()) <= 2

    own_database.set_read_only(read_only=False)
    eventually(lambda: instance.health("/readyz")[0] == 200, WAIT, lambda: instance.log)
    for request in ids:
        bench.client.submit("noted", payload, request_id=request)
    for request in ids:
        assert bench.client.wait(request, WAIT).state == "done"
    bench.check_books(set(ids))
    assert bench.states() == {"done": len(ids)}
    assert instance.stop() == 0


@pytest.mark.long
def test_a_table_that_is_locked_is_no_database_that_is_away(
    bench: Bench, own_database: OwnDatabase
) -> None:
    """As while an index of dead_letters is rebuilt: one lost session refuses nothing."""
    instance = bench.start(ONCEPOOL_WORKERS="2")
    first = bench.client.submit("effect", {"table": bench.table})
    assert bench.client.wait(first, WAIT).state == "done"
    with psycopg.connect(own_database.url) as operator:
        operator.execute(f"LOCK TABLE {bench.schema}.dead_letters IN SHARE MODE")
        payload = {"table": bench.table, "seconds": 0.5}
        ids = [bench.client.submit("paced", payload) for _ in range(60)]
        assert own_database.end_connections("oncepool maintenance")
        ends = [bench.client.wait(request, WAIT) for request in ids]
    assert {(end.state, end.code) for end in ends} == {("done", "ok")}, instance.log
    assert instance.stop() == 0


@pytest.mark.long
def test_workers_that_get_no_connection_make_an_instance_unready_though_another_stands(
    bench: Bench, own_database: OwnDatabase
) -> None:
    """As where a server has no slots left, or a password was changed: nothing is lost meanwhile."""
    instance = bench.start()
    ids = [bench.client.submit("effect", {"table": bench.table})]
    assert bench.client.wait(ids[0], WAIT).state == "done"
    eventually(lambda: instance.health("/readyz")[0] == 200, WAIT, lambda: instance.log)

    own_database.let_in(new=False)
    eventually(lambda: own_database.end_connections(WORKER) == 0, WAIT)
    ids += [bench.client.submit("effect", {"table": bench.table}) for _ in range(20)]
    unready = lambda: instance.health("/readyz")[1]["workers"] is False  # noqa: E731
    eventually(unready, WAIT, lambda: instance.log)
    status, checks = instance.health("/readyz")
    assert status == 503
    assert checks["database"], "that session stands"
    assert {status.state for status in bench.statuses(ids[1:]) if status} == {"accepted"}

    own_database.let_in(new=True)
    for request in ids[1:]:
        assert bench.client.wait(request, WAIT).state == "done"
    eventually(lambda: instance.health("/readyz")[0] == 200, WAIT, lambda: instance.log)
    bench.check_books(set(ids))
    assert instance.stop() == 0


@pytest.mark.long
def test_workers_go_on_where_only_the_maintenance_process_has_lost_its_session(
    bench: Bench, own_database: OwnDatabase
) -> None:
    """And gets no other one; workers that lose theirs as well show that the database is away."""
    instance = bench.start(ONCEPOOL_WORKERS="2")
    first = bench.client.submit("effect", {"table": bench.table})
    assert bench.client.wait(first, WAIT).state == "done"
    eventually(lambda: bench.query(SESSIONS, f"{WORKER}%") == [(2,)], WAIT)
    own_database.let_in(new=False)
    assert own_database.end_connections("oncepool maintenance")
    instance.says("database away")
    payload = {"table": bench.table, "seconds": 0.1}
    ids = [bench.client.submit("paced", payload) for _ in range(40)]
    ends = [bench.client.wait(request, WAIT) for request in ids]
    assert {(end.state, end.code) for end in ends} == {("done", "ok")}, instance.log
    assert bench.said()["paused"] == []
    assert instance.health("/readyz")[1]["database"] is False, "there is no housekeeping"

    late = [bench.client.submit("paced", {"table": bench.table, "seconds": 1.0}) for _ in range(40)]
    eventually(lambda: bench.said()["running"], WAIT)
    assert own_database.end_connections(WORKER) == 2
    instance.says("database away: intake stops")
    eventually(lambda: bench.said()["paused"] == ["database"], WAIT, lambda: instance.log)

    own_database.let_in(new=True)
    ends = [bench.client.wait(request, WAIT) for request in late]
    assert {(e.state, e.code) for e in ends} <= {("done", "ok"), ("failed", "database_unavailable")}
    last = bench.client.submit("effect", {"table": bench.table})
    assert bench.client.wait(last, WAIT).state == "done"
    assert instance.stop() == 0


@pytest.mark.long
def test_workers_find_the_database_again_with_no_maintenance_process(
    bench: Bench, own_database: OwnDatabase
) -> None:
    """It can't start, as somebody else has its port; requests go on meanwhile."""
    port = free_port(set())
    instance = bench.start(ONCEPOOL_HEALTH_PORT=str(port), ONCEPOOL_WORKERS="2")
    payload = {"table": bench.table, "seconds": 0.2}
    ids = [bench.client.submit("paced", payload)]
    assert bench.client.wait(ids[0], WAIT).state == "done"
    [maintenance] = set(instance.children()) - set(instance.workers())
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        os.kill(maintenance, signal.SIGKILL)

        def bound() -> bool:
            try:
                taken.bind(("127.0.0.1", port))
            except OSError:
                return False
            return True

        eventually(bound)
        taken.listen()
        instance.says("could not start")
        ids += [bench.client.submit("paced", payload) for _ in range(100)]
        eventually(lambda: bench.done() >= 5, WAIT)
        own_database.let_in(new=False)
        lost = "a worker lost its connection"
        assert own_database.end_connections(WORKER)
        instance.says(lost, 2)
        own_database.let_in(new=True)
        eventually(lambda: bench.done() == len(ids), WAIT, lambda: f"{bench.states()}")
    bench.check_books(set(ids))
    assert instance.stop() == 0


def test_what_ends_its_connection_at_each_commit_fails_and_what_follows_it_goes_on(
    bench: Bench, tmp_path: Path
) -> None:
    """A deferred trigger does, each second time: where it fires is looked at before the COMMIT."""
    entered = tmp_path / "entered"
    bench.query(f"CREATE SEQUENCE {bench.schema}.fired")
    bench.query(
        f"CREATE FUNCTION {bench.schema}.end_it() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" IF nextval('{bench.schema}.fired') % 2 = 0 THEN"
        " PERFORM pg_terminate_backend(pg_backend_pid()); END IF; RETURN NULL; END $$"
    )
    bench.query(
        f"CREATE CONSTRAINT TRIGGER ends AFTER INSERT ON {bench.table} DEFERRABLE INITIALLY"
        f" DEFERRED FOR EACH ROW WHEN (NEW.id = 'k') EXECUTE FUNCTION {bench.schema}.end_it()"
    )
    instance = bench.start()
    payload = {"table": bench.table, "file": str(entered)}
    ids = [
        bench.client.submit("noted", payload, request_id=name, key="one")
        for name in ("before", "k", "after")
    ]
    ends = [bench.client.wait(request, WAIT) for request in ids]
    assert [(end.state, end.code) for end in ends] == [
        ("done", "ok"), ("failed", "handler_error"), ("done", "ok"),
    ]  # fmt: skip
    assert "lost 10 times in a row" in str(ends[1].reason)
    times = Counter(line.split()[-1] for line in entered.read_text().splitlines())
    assert times["k"] <= 10 + 2, "once in its chunk, and then alone"
    assert sorted(row[0] for row in bench.query(f"SELECT id FROM {bench.table}")) == [
        "after", "before",
    ]  # fmt: skip
    assert bench.states() == {"done": 2, "failed": 1}
    assert instance.stop() == 0
