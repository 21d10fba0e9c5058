"""What requests come to when the database fails in earnest: each fault is done, not raised."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from feedback.backoff import Backoff
from feedback.journal.housekeeping import in_doubt_statuses, sweep_expired_claims
from feedback.journal.migrations import migrate
from processing import App, Request, Retry
from processing.handlers.stopping import STOPPING
from processing.ipc.frames import Suspect
from processing.worker import bad_luck
from stack import Stack
from tests.support.executor import Bench, FakeGate, chunk_run
from tests.support.own_database import OwnDatabase
from tests.support.proxy import Proxy

Hook = Callable[[], None]


@pytest.fixture
def entered() -> Counter[str]:
    return Counter()


@pytest.fixture
def hooks() -> dict[str, Hook]:
    """What happens while the handler of an id runs."""
    return {}


def shop(schema: str, entered: Counter[str], hooks: dict[str, Hook]) -> App:
    app = App()

    def enter(request: Request) -> None:
        entered[request.id] += 1
        if request.id in hooks:
            hooks[request.id]()

    @app.handler("pay")
    def pay(payload: dict[str, Any], request: Request, tx: psycopg.Cursor[Any]) -> str:
        tx.execute(f"INSERT INTO {schema}.effects VALUES (%s)", [request.id])
        enter(request)
        if "sql" in payload:
            tx.execute(payload["sql"])
        return "paid"

    @app.handler("look", retries=3)
    def look(payload: dict[str, Any], request: Request, tx: psycopg.Cursor[Any]) -> None:
        enter(request)

    @app.handler("charge", effect="external")
    def charge(payload: dict[str, Any], request: Request) -> str:
        enter(request)
        return "charged"

    @app.handler("charge.tx", effect="external")
    def charge_tx(payload: dict[str, Any], request: Request, tx: psycopg.Cursor[Any]) -> str:
        tx.execute(f"INSERT INTO {schema}.effects VALUES (%s)", [request.id])
        enter(request)
        return "charged"

    return app


def bench_at(
    url: str, through: str, schema: str, entered: Counter[str], hooks: dict[str, Hook]
) -> Iterator[Bench]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {schema}.effects (id text)".encode())
    made = Bench(shop(schema, entered, hooks), through, schema)
    made.url = url
    yield made
    made.executor.close()
    made.app.stop_worker()


@pytest.fixture
def bench(
    stack: Stack, through: str, schema: str, entered: Counter[str], hooks: dict[str, Hook]
) -> Iterator[Bench]:
    """Its executor reaches the database through the proxy."""
    yield from bench_at(stack.database, through, schema, entered, hooks)


@pytest.fixture
def alone(
    own_database: OwnDatabase, entered: Counter[str], hooks: dict[str, Hook]
) -> Iterator[Bench]:
    """In a database of its own."""
    migrate(own_database.url, "oncepool")
    yield from bench_at(own_database.url, own_database.url, "oncepool", entered, hooks)


def end_backend(bench: Bench) -> None:
    pid, _ = bench.backends[-1]
    assert bench.query("SELECT pg_terminate_backend(%s, 10000)", pid) == [(True,)]


def payments(bench: Bench, *names: str) -> list[Any]:
    return [bench.record(name, "pay", {}) for name in names]


def test_the_rest_of_a_chunk_goes_on_after_a_commit_without_an_answer(
    bench: Bench, proxy: Proxy
) -> None:
    proxy.lose_answer(b"COMMIT\0")
    report = bench.run(*payments(bench, "a"), bench.record("c", "charge", {}))
    assert report.unclear == [0]
    assert bench.state("c") == ("done", "ok")


def test_a_database_that_cannot_be_reached_gives_back_what_was_not_committed(
    bench: Bench, proxy: Proxy, entered: Counter[str]
) -> None:
    proxy.cut()
    report = bench.run(*payments(bench, "a"))
    assert (report.database_up, report.returned, entered) == (False, [0], {})
    assert bench.state("a") is None, "whether it is away for all another process finds out"
    proxy.mend()
    assert bench.run(*payments(bench, "a")).database_up
    assert (bench.state("a"), bench.effects()) == (("done", "ok"), ["a"])


def test_what_was_called_back_is_told_nothing_when_the_database_goes(
    bench: Bench, proxy: Proxy
) -> None:
    proxy.cut()
    report = bench.run(*payments(bench, "a", "b"), recalled=[1])
    assert (report.database_up, bench.statuses, bench.rows()) == (False, [], {})


# The database takes no writes


def test_a_read_only_database_is_away_and_enters_no_handler_twice(
    alone: Bench, own_database: OwnDatabase, entered: Counter[str]
) -> None:
    alone.run(*payments(alone, "before"))
    own_database.set_read_only(read_only=True)
    records = [alone.record(f"r{n}", "look", {}) for n in range(64)]
    report = alone.run(*records, *payments(alone, *(f"p{n}" for n in range(20))))
    assert not report.database_up
    assert (sorted(report.returned), report.unclear) == (list(range(84)), [])
    assert {s["id"] for s in alone.statuses} == {"before"}
    assert max(entered.values()) == 1
    assert set(alone.rows()) == {"before"}
    entered.clear()
    assert alone.run(*payments(alone, "late")).returned == [0]
    assert entered == {}, "no handler is tried before a probe"
    own_database.set_read_only(read_only=False)
    assert alone.run(*records).database_up
    assert {alone.state(f"r{n}") for n in range(64)} == {("done", "ok")}


@pytest.mark.parametrize("table", ["requests", "effects"])
def test_a_full_disk_is_an_outage(alone: Bench, entered: Counter[str], table: str) -> None:
    """A trigger says what the server would say: a real full disk needs a file system of its own."""
    full(alone, table)
    full(alone, "dead_letters")
    report = alone.run(*payments(alone, *(f"p{n}" for n in range(40))))
    assert not report.database_up
    assert (sorted(report.returned), alone.statuses) == (list(range(40)), [])
    assert not entered or max(entered.values()) == 1
    for name in (table, "dead_letters"):
        alone.query(f"DROP TRIGGER full_disk ON {alone.schema}.{name}")
    assert alone.run(*payments(alone, "later")).database_up
    assert alone.state("later") == ("done", "ok")


def test_what_one_statement_may_not_have_is_no_outage(alone: Bench, entered: Counter[str]) -> None:
    alone.query(f"ALTER ROLE CURRENT_USER IN DATABASE {alone.url.rpartition('/')[2]}"
                " SET temp_file_limit = '64kB'")  # fmt: skip
    alone.executor.close()
    greedy = "SELECT count(*) FROM (SELECT DISTINCT n::text FROM generate_series(1, 300000) n) x"
    records = payments(alone, "a", "b")
    report = alone.run(*records, alone.record("greedy", "pay", {"sql": greedy}))
    assert report.database_up
    assert alone.rows() == {
        "a": ("done", "ok"), "b": ("done", "ok"), "greedy": ("failed", "handler_error"),
    }  # fmt: skip
    assert "temp_file_limit" in alone.statuses[-1]["error"]
    assert (alone.effects(), max(entered.values()) <= 4) == (["a", "b"], True)


def test_only_a_row_makes_a_request_wait_or_dead(alone: Bench) -> None:
    alone.query(f"ALTER TABLE {alone.schema}.requests ADD CONSTRAINT none CHECK (id <> 'x')")
    alone.run(alone.record("x", "look", {"sql": "SELECT 1/0"}))
    assert alone.state("x") == ("failed", "handler_error")
    assert alone.bumped[-1]


@pytest.mark.parametrize("table, odd", [("dead_letters", "NEW.detail <> 'probe'"),
                                        ("requests", "NEW.state = 'failed'")])  # fmt: skip
def test_what_the_journal_had_no_room_for_is_no_end_where_a_probe_finds_room_again(
    alone: Bench, table: str, odd: str
) -> None:
    """The disk is full for a moment: neither the dead letter nor the failure is given up."""
    full(alone, table, odd)
    message = (alone.record(None, "pay", {}) if table == "dead_letters"
               else alone.record("x", "pay", {"sql": "SELECT 1/0"}))  # fmt: skip
    report = alone.run(message)
    left = report.returned + report.unclear
    assert (report.database_up, left, alone.statuses) == (False, [0], [])
    alone.query(f"DROP TRIGGER full_disk ON {alone.schema}.{table}")
    assert alone.run(message).database_up
    assert (len(alone.letters()), len(alone.rows())) == (
        (1, 0) if table == "dead_letters" else (0, 1)
    )


def full(bench: Bench, table: str, when: str = "true") -> None:
    bench.query(f"""
        CREATE OR REPLACE FUNCTION {bench.schema}.full_disk() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$
    """)
    bench.query(
        f"CREATE TRIGGER full_disk BEFORE INSERT ON {bench.schema}.{table} FOR EACH ROW"
        f" WHEN ({when}) EXECUTE FUNCTION {bench.schema}.full_disk()"
    )


# Calls outside


def test_what_a_call_came_to_outlives_a_restart_of_the_database(
    bench: Bench, proxy: Proxy, hooks: dict[str, Hook], monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []
    connect = psycopg.connect

    def mended_at_the_third(*args: Any, **options: Any) -> Any:
        tries.append(args)
        if len(tries) == 3:
            proxy.mend()
        return connect(*args, **options)

    def restart() -> None:
        monkeypatch.setattr(psycopg, "connect", mended_at_the_third)
        proxy.cut()

    hooks["c"] = restart
    bench.run(bench.record("c", "charge", {}))
    monkeypatch.undo()
    assert (bench.state("c"), len(tries)) == (("done", "ok"), 3)
    assert bench.rows() == {"c": ("done", "ok")}


def test_an_end_whose_answer_was_lost_is_found(
    bench: Bench, proxy: Proxy, hooks: dict[str, Hook], entered: Counter[str]
) -> None:
    hooks["c"] = lambda: proxy.lose_answer(b"COMMIT\0")
    report = bench.run(bench.record("c", "charge", {}))
    assert proxy.lost == 1
    assert (bench.rows(), bench.state("c")) == ({"c": ("done", "ok")}, ("done", "ok"))
    assert (report.unclear, report.database_up, entered) == ([], True, {"c": 1})


def test_an_end_that_comes_late_survives_a_connection_that_ended_meanwhile(
    bench: Bench, hooks: dict[str, Hook], entered: Counter[str]
) -> None:
    """At its deadline, or at a stop, a call is told to give up: what it came to still counts."""

    def end_late() -> None:
        STOPPING.set()
        end_backend(bench)

    hooks["c"] = end_late
    try:
        report = bench.run(bench.record("c", "charge", {}))
    finally:
        STOPPING.clear()
    assert (bench.rows(), bench.state("c")) == ({"c": ("done", "ok")}, ("done", "ok"))
    assert (report.database_up, entered) == (True, {"c": 1})


def test_a_retry_that_comes_after_the_sweep_replaces_what_that_told(
    bench: Bench, hooks: dict[str, Hook]
) -> None:
    """Its lease ran out while the call went on: who polls its status sees that it waits."""

    def late() -> None:
        bench.query(f"UPDATE {bench.schema}.requests SET lease_until = now() - interval '1 s'")
        with psycopg.connect(bench.url, autocommit=True) as connection:
            swept = sweep_expired_claims(connection, schema=bench.schema)
        bench.publish(in_doubt_statuses(swept, 60))
        raise Retry(after=60)

    hooks["c"] = late
    bench.run(bench.record("c", "charge", {}, ce_replyto="who waits"))
    doubt, waits = bench.statuses[-2:]
    assert [way[3] for way in bench.ways[-2:]] == ["who waits"] * 2
    assert (doubt["state"], waits["state"]) == ("in_doubt", "waiting")
    assert waits["v"] > doubt["v"], "the later one stands"
    assert bench.query(f"SELECT state, run FROM {bench.schema}.requests") == [("waiting", 2)]


def test_a_claim_that_somebody_locks_out_is_made_later(
    bench: Bench, hooks: dict[str, Hook], entered: Counter[str]
) -> None:
    """Somebody looks at its row, as an operator in a transaction of their own."""
    bench.executor.close()
    bench.executor = bench.another(bench.url, lock_timeout=0.2)
    bench.run(bench.record("c", "charge", {}))
    bench.query(f"UPDATE {bench.schema}.requests SET state = 'failed', run = run + 1")
    with psycopg.connect(bench.url) as somebody:
        somebody.execute(f"SELECT FROM {bench.schema}.requests FOR UPDATE".encode())
        letting_go = threading.Timer(1.0, somebody.commit)
        letting_go.start()
        bench.run(bench.record("c", "charge", {}))
        letting_go.join()
    assert (bench.rows(), entered) == ({"c": ("done", "ok")}, {"c": 2})


def test_the_deadline_of_a_call_begins_with_it(bench: Bench, entered: Counter[str]) -> None:
    """A claim that waits for a lock must not have its worker killed."""
    gate = FakeGate()
    bench.run_chunk(chunk_run([bench.record("c", "charge", {})], gate=gate))
    assert (gate.timeouts[-2], gate.timeouts[-1] is not None, entered) == (None, True, {"c": 1})


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses between tries."""
    monkeypatch.setattr(bad_luck, "BETWEEN_TRIES", Backoff(0.0, 0.0))


@pytest.mark.parametrize("prepare", [5, None])
@pytest.mark.usefixtures("hasty")
def test_a_claim_that_stays_locked_out_is_given_up_and_never_runs(
    bench: Bench, entered: Counter[str], prepare: int | None
) -> None:
    """A row that somebody looks at, and an id that somebody is about to write.

    Time-outs are those of the session, or come with each transaction where nothing is prepared.
    """
    bench.executor.close()
    bench.executor = bench.another(bench.url, lock_timeout=0.02, prepare_threshold=prepare)
    bench.run(bench.record("old", "charge", {}))
    bench.query(f"UPDATE {bench.schema}.requests SET state = 'failed', run = run + 1")
    patience = "-c idle_in_transaction_session_timeout=60s"
    with psycopg.connect(bench.url, options=patience) as somebody:
        somebody.execute(f"SELECT FROM {bench.schema}.requests FOR UPDATE".encode())
        somebody.execute(
            f"INSERT INTO {bench.schema}.requests (id, type, state, code, attempt, run,"
            " crashes, topic, partition, kafka_offset, produced_at, effect)"
            " VALUES ('new', 'charge', 'done', 'ok', 1, 1, 0, 't', 0, 0, now(), 'external')"
        )
        report = bench.run(bench.record("old", "charge", {}), bench.record("new", "charge", {}))
        somebody.rollback()
    assert (report.returned, report.database_up, entered) == ([0, 1], True, {"old": 1})
    bench.run(bench.record("old", "charge", {}), bench.record("new", "charge", {}))
    assert bench.rows() == {"old": ("done", "ok"), "new": ("done", "ok")}
    assert entered == {"old": 2, "new": 1}


@pytest.mark.parametrize(
    "meets, end",
    [
        ("RAISE EXCEPTION 'locked' USING ERRCODE = 'lock_not_available'", ("waiting", "retry")),
        ("PERFORM pg_terminate_backend(pg_backend_pid())", ("failed", "handler_error")),
    ],
)
@pytest.mark.usefixtures("hasty")
def test_a_claim_that_is_never_made_ends_as_other_runs_do(
    bench: Bench, entered: Counter[str], meets: str, end: tuple[str, str]
) -> None:
    bench.query(
        f"CREATE FUNCTION {bench.schema}.meet() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN IF NEW.state = 'running' THEN {meets}; END IF; RETURN NEW; END $$"
    )
    bench.query(
        f"CREATE TRIGGER meet BEFORE INSERT ON {bench.schema}.requests FOR EACH ROW"
        f" EXECUTE FUNCTION {bench.schema}.meet()"
    )
    report = bench.run(bench.record("c", "charge", {}))
    assert (bench.rows(), bench.state("c"), entered) == ({"c": end}, end, {})
    assert (report.returned, report.unclear, report.database_up) == ([], [], True)


def test_a_claim_whose_answer_was_lost_is_found_and_run(
    bench: Bench, proxy: Proxy, entered: Counter[str]
) -> None:
    proxy.lose_answer(b"'claimed'")
    bench.run(bench.record("c", "charge", {}))
    assert proxy.lost == 1
    assert (bench.rows(), entered) == ({"c": ("done", "ok")}, {"c": 1})


def test_a_result_is_none_where_the_handlers_transaction_was_lost(
    bench: Bench, hooks: dict[str, Hook]
) -> None:
    hooks["c"] = lambda: end_backend(bench)
    bench.run(bench.record("c", "charge.tx", {}))
    assert bench.rows() == {"c": ("in_doubt", "handler_error")}
    assert (bench.effects(), bench.state("c")) == ([], ("in_doubt", "handler_error"))


# Dead letters


def test_a_dead_letter_is_kept_although_the_answer_was_lost(bench: Bench, proxy: Proxy) -> None:
    proxy.lose_answer(b"COMMIT\0")
    report = bench.run(bench.record(None, "pay", {}))
    assert proxy.lost == 1
    assert (bench.letters(), report.unclear) == ([("malformed", None)], [])


def test_a_dead_letter_waits_for_a_database_that_takes_writes(
    alone: Bench, own_database: OwnDatabase
) -> None:
    alone.run(*payments(alone, "before"))
    own_database.set_read_only(read_only=True)
    message = alone.record(None, "pay", {})
    report = alone.run(message, *payments(alone, "a"))
    assert (report.unclear, report.returned, report.database_up) == ([0], [1], False)
    own_database.set_read_only(read_only=False)
    alone.run(message, suspect=Suspect(None, (), ()))
    assert alone.letters() == [("malformed", None)]


def test_dead_letters_that_others_lock_out_come_again(alone: Bench) -> None:
    alone.executor.close()
    alone.executor = alone.another(alone.url, lock_timeout=0.05)
    messages = [alone.record(None, "pay", {}), alone.record(None, "pay", {"n": 2})]
    with psycopg.connect(alone.url) as other:
        other.execute(f"LOCK TABLE {alone.schema}.dead_letters IN EXCLUSIVE MODE".encode())
        report = alone.run(*messages, *payments(alone, "a"))
    assert (report.unclear, report.counts.get(("pay", "dead_letter", "malformed"))) == (
        [0, 1],
        None,
    )
    assert alone.rows() == {"a": ("done", "ok")}
    for message in messages:
        alone.run(message, suspect=Suspect(None, (), ()))
    assert alone.letters() == [("malformed", None)] * 2


def test_who_breaks_the_connection_each_time_is_found_and_fails_alone(
    alone: Bench, entered: Counter[str]
) -> None:
    schema = alone.schema
    alone.query(f"CREATE TABLE {schema}.poison (i int)")
    alone.query(
        f"CREATE FUNCTION {schema}.die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(1); RETURN NULL; END $$"
    )
    alone.query(
        f"CREATE CONSTRAINT TRIGGER die AFTER INSERT ON {schema}.poison DEFERRABLE"
        f" INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}.die()"
    )
    names = [f"p{n}" for n in range(6)]
    poison = {"sql": f"INSERT INTO {schema}.poison VALUES (1)"}
    report = alone.run(*payments(alone, *names), alone.record("bad", "pay", poison))
    assert (report.database_up, report.unclear, report.returned) == (True, [], [])
    assert alone.rows() == {
        **dict.fromkeys(names, ("done", "ok")),
        "bad": ("failed", "handler_error"),
    }
    assert alone.effects() == names
    assert entered["bad"] < 30


def test_a_connection_that_somebody_ends_again_and_again_is_no_deed_of_the_handlers(
    bench: Bench, hooks: dict[str, Hook], entered: Counter[str]
) -> None:
    hooks["a"] = lambda: end_backend(bench) if entered["a"] <= 5 else None
    report = bench.run(bench.record("a", "pay", {"sql": "SELECT 1"}), *payments(bench, "b"))
    assert (report.unclear, report.returned, report.database_up) == ([], [], True)
    assert bench.rows() == dict.fromkeys("ab", ("done", "ok"))
    assert (bench.effects(), entered["a"]) == (["a", "b"], 6)


def test_who_loses_its_connection_each_time_is_told_so(
    bench: Bench, hooks: dict[str, Hook], entered: Counter[str]
) -> None:
    hooks["a"] = lambda: end_backend(bench)
    report = bench.run(bench.record("a", "pay", {"sql": "SELECT 1"}), *payments(bench, "b"))
    assert (report.unclear, report.returned, report.database_up) == ([], [], True)
    assert bench.rows() == {"a": ("failed", "handler_error"), "b": ("done", "ok")}
    told = next(s for s in bench.statuses if s["id"] == "a")
    assert told["reason"] == "the database connection was lost 10 times in a row while it was tried"
    assert "terminating connection due to administrator command" in told["error"]
    assert (bench.effects(), entered["a"]) == (["b"], 13)
