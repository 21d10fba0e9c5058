"""What the executor does with a chunk, on real PostgreSQL."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from feedback.journal.writer import JournalWriter
from processing import App, Done, NotDone, Reject, Request, Retry, Unknown
from processing.handlers.decoder import Skip
from processing.ipc.frames import Suspect
from stack import Stack
from tests.support.executor import Bench, chunk_run


def make_app(  # noqa: C901, PLR0915 - a list of handlers
    schema: str, answers: dict[str, Any], ran: list[str]
) -> App:
    app = App()

    def effect_of(tx: psycopg.Cursor[Any], id: str) -> None:
        tx.execute(f"INSERT INTO {schema}.effects VALUES (%s)", (id,))

    @app.handler("pay")
    def pay(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> Any:
        ran.append(request.id)
        effect_of(tx, request.id)
        match payload:
            case {"raise": True}:
                raise ValueError("boom\0")
            case {"reject": code}:
                raise Reject(code, "no")
            case {"retry": True}:
                raise Retry(after=5, reason="later")
            case {"exit": True}:
                sys.exit(1)
            case {"sql": statement}:
                tx.execute(statement)
            case {"swallow": True}:
                with contextlib.suppress(psycopg.Error):
                    tx.execute("SELECT 1/0")
            case {"raw": statement}:
                tx._conn.pgconn.exec_(statement.encode())
            case {"close": True}:
                tx._conn.close()
            case {"return": value}:
                return value
        return {"id": request.id}

    @app.handler("plain")
    def plain(payload: Any, request: Request[Any]) -> Any:
        ran.append(request.id)
        if payload == "raise":
            raise ValueError("boom")
        return payload

    @app.handler("none", effect="none")
    def none(payload: Any) -> Any:
        if payload == "raise":
            raise ValueError("boom")
        return payload

    @app.batch_handler("nonebatch", effect="none")
    def nonebatch(requests: list[Request[Any]]) -> list[Any]:
        return [r.payload for r in requests]

    @app.batch_handler("batch")
    def batch(requests: list[Request[Any]], tx: psycopg.Cursor[Any]) -> list[Any]:
        if any(r.payload == "raise" for r in requests):
            raise ValueError("all")
        if any(r.payload == "swallow" for r in requests):
            tx._conn.pgconn.exec_(b"SELECT 1/0")
        for request in requests:
            effect_of(tx, request.id)
            if request.payload == "deferred":
                tx.execute(f"INSERT INTO {schema}.child VALUES (99)")
        return [Reject("odd") if r.payload == "odd" else r.payload for r in requests]

    def check(request: Request[Any]) -> Any:
        return answers.get(request.id, Unknown())

    @app.handler("charge", effect="external", check=check)
    def charge(payload: Any, request: Request[Any]) -> Any:
        ran.append(request.id)
        match payload:
            case "reject":
                raise Reject("declined")
            case "retry":
                raise Retry(after=1)
            case "raise":
                raise ValueError("half way")
            case "steal":
                with psycopg.connect(answers["url"], autocommit=True) as other:
                    other.execute(f"UPDATE {schema}.requests SET token = 'x'")
        return "charged"

    @app.handler("notify", effect="external")
    def notify(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        effect_of(tx, request.id)
        if payload == "raise":
            raise ValueError("boom")
        if payload == "deferred":
            tx.execute(f"INSERT INTO {schema}.child VALUES (99)")

    @app.decoder("foreign")
    def foreign(message: Any) -> Any:
        return Skip("not ours")

    return app


@pytest.fixture
def answers(stack: Stack) -> dict[str, Any]:
    return {"url": stack.database}


@pytest.fixture
def bench(stack: Stack, schema: str, answers: dict[str, Any], ran: list[str]) -> Iterator[Bench]:
    made = Bench(make_app(schema, answers, ran), stack.database, schema)
    made.query(f"CREATE TABLE {schema}.effects (id text)")
    made.query(f"CREATE TABLE {schema}.parent (id int PRIMARY KEY)")
    made.query(
        f"CREATE TABLE {schema}.child (id int REFERENCES {schema}.parent"
        " DEFERRABLE INITIALLY DEFERRED)"
    )
    yield made
    made.executor.close()


def test_done_with_its_effect_and_duplicates_answered(bench: Bench, ran: list[str]) -> None:
    first = bench.record("a", "pay", {"n": 1}, ce_replyto="channel")
    report = bench.run(first, bench.record("a", "pay", {"n": 1}), bench.record("b", "plain", [1]))
    assert report.counts == {
        ("pay", "done", "ok"): 1,
        ("plain", "done", "ok"): 1,
        ("pay", "done", "duplicate"): 1,
    }
    assert bench.effects() == ["a"]
    bench.statuses.clear()
    bench.run(bench.record("a", "pay", b'{ "n":1 }'))
    assert (bench.state("a"), bench.statuses[0]["result"]) == (("done", "ok"), {"id": "a"})
    assert ran.count("a") == 1
    resends = bench.query(f"SELECT resends, payload FROM {bench.schema}.requests WHERE id = 'a'")
    assert resends == [(2, None)]
    assert report.times["pay"][0] == 1


def test_conflicts_and_malformed_become_one_dead_letter_each(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.run(bench.record("a", "pay", {"n": 1}))
    malformed = bench.record("m", None, {}, ce_replyto="who waits")
    for _ in range(2):
        bench.run(bench.record("a", "pay", {"n": 1}), malformed, bench.record(None, "pay", {}))
    bench.run(bench.record("a", "pay", {"n": 2}))
    bench.run(bench.record("a", "plain", {"n": 1}))
    reasons = sorted(bench.letters(), key=str)
    assert reasons.count(("malformed", "m")) == 1
    assert reasons.count(("conflict", "a")) == 2
    assert bench.state("m") == ("failed", "malformed")
    assert {way[3] for way in bench.ways if way[0] == "m"} == {"who waits"}
    lines = [record.getMessage() for record in caplog.records]
    assert any("message became a dead letter" in line and "malformed" in line for line in lines)
    assert bench.rows() == {"a": ("done", "ok")}
    assert bench.effects() == ["a"]


def test_bad_requests_end_before_their_handler(bench: Bench, ran: list[str]) -> None:
    past, future = "2001-01-01T00:00:00Z", "2035-01-01T00:00:00Z"
    bench.run(
        bench.record("null", "pay", None),
        bench.record("json", "pay", b"{no"),
        bench.record("large", "pay", b'"' + b"x" * 1_100_000 + b'"'),
        bench.record("type", "nobody", {}),
        bench.record("late", "pay", {}, ce_expirytime=past),
        bench.record("early", "pay", {}, ce_notbefore=future),
        bench.record("quick", "pay", {}, ce_timeout="5"),
        ("foreign", 0, 1, 0, None, b"", [], None, None),
    )
    assert bench.rows() == {
        "null": ("rejected", "invalid_payload"),
        "json": ("rejected", "invalid_payload"),
        "large": ("rejected", "invalid_payload"),
        "type": ("waiting", "unknown_type"),
        "late": ("rejected", "expired"),
        "early": ("waiting", "delayed"),
        "quick": ("done", "ok"),
    }
    assert ran == ["quick"]


BAD = {
    "raise": ({"raise": True}, ("failed", "handler_error")),
    "reject": ({"reject": "no_funds"}, ("rejected", "no_funds")),
    "retry": ({"retry": True}, ("waiting", "retry")),
    "exit": ({"exit": True}, ("failed", "handler_error")),
    "commit": ({"sql": "select 1; /* x */ COMMIT"}, ("failed", "handler_error")),
    "bad sql": ({"sql": "SELECT nothing"}, ("failed", "handler_error")),
    "swallow": ({"swallow": True}, ("failed", "handler_error")),
    "nul": ({"return": "\0"}, ("failed", "handler_error")),
    "raw rollback": ({"raw": "ROLLBACK"}, ("in_doubt", "transaction_ended")),
    "close": ({"close": True}, ("failed", "transaction_ended")),
}


@pytest.mark.parametrize("bad", BAD)
def test_neighbours_are_unharmed(bench: Bench, bad: str, ran: list[str]) -> None:
    payload, end = BAD[bad]
    records = [bench.record(f"n{n:02}", "pay", {"n": n}) for n in range(60)]
    records[30] = bench.record("bad", "pay", payload)
    bench.run(*records)
    rows = bench.rows()
    assert rows.pop("bad") == end
    assert set(rows.values()) == {("done", "ok")}
    assert bench.effects() == sorted(rows)
    assert len(rows) == 59
    if end[0] == "failed":
        before = ran.count("bad")
        bench.run(bench.record("bad", "pay", payload))
        assert ran.count("bad") > before
        run = bench.query(f"SELECT run FROM {bench.schema}.requests WHERE id = 'bad'")
        assert run == [(2,)]
        failed = bench.query(f"SELECT run FROM {bench.schema}.attempts ORDER BY 1")
        assert failed == [(1,), (2,)]


def test_a_deferred_constraint_is_blamed_on_its_request(bench: Bench) -> None:
    broken = {"sql": f"INSERT INTO {bench.schema}.child VALUES (99)"}
    records = [bench.record(f"n{n}", "pay", {"n": n}) for n in range(30)]
    bench.run(*records[:10], bench.record("bad", "pay", broken), *records[10:])
    rows = bench.rows()
    assert rows.pop("bad") == ("failed", "handler_error")
    assert set(rows.values()) == {("done", "ok")}


def test_a_transaction_that_a_handler_committed_leaves_it_in_doubt(bench: Bench) -> None:
    bench.run(
        bench.record("a", "pay", {}),
        bench.record("b", "pay", {"raw": "COMMIT"}),
        bench.record("c", "pay", {}),
    )
    assert bench.rows() == {
        "a": ("done", "ok"),
        "b": ("in_doubt", "transaction_ended"),
        "c": ("done", "ok"),
    }
    assert bench.effects() == ["a", "b", "c"]


def test_batches(bench: Bench) -> None:
    bench.run(*[bench.record(f"b{n}", "batch", "odd" if n == 1 else n) for n in range(3)])
    assert bench.rows() == {
        "b0": ("done", "ok"),
        "b1": ("rejected", "odd"),
        "b2": ("done", "ok"),
    }
    for name, bad in (("r", "raise"), ("d", "deferred"), ("s", "swallow")):
        bench.run(bench.record(f"{name}1", "batch", bad), bench.record(f"{name}2", "batch", 1))
        assert bench.rows()[f"{name}2"] == ("failed", "handler_error")
    assert bench.effects() == ["b0", "b1", "b2"]
    report = bench.run(bench.record("x", "batch", 1), recalled=[0])
    assert report.returned == [0]


def test_mixed_groups_keep_the_order_of_a_key(bench: Bench, ran: list[str]) -> None:
    key = b"k"
    bench.run(
        bench.record("1", "pay", {}, key),
        bench.record("2", "charge", {}, key),
        bench.record("3", "pay", {}, key),
    )
    assert ran == ["1", "2", "3"]
    bench.run(bench.record("4", "charge", {}), bench.record("5", "pay", {}))
    assert bench.rows()["4"] == ("done", "ok")


def test_pure_computation_has_no_row(bench: Bench) -> None:
    bench.run(
        bench.record("p", "none", 5),
        bench.record("q", "none", "raise"),
        bench.record("r", "nonebatch", 1),
    )
    assert bench.rows() == {}
    assert bench.state("p") == ("done", "ok")
    assert bench.state("q") == ("failed", "handler_error")
    bench.run(bench.record("s", "none", 5), suspect=Suspect("timeout", (), ()))
    assert bench.state("s") == ("failed", "timeout")


def test_external_effects_run_once(bench: Bench, ran: list[str], answers: dict[str, Any]) -> None:
    for name, payload in (("ok", 1), ("no", "reject"), ("re", "retry"), ("half", "raise")):
        bench.run(bench.record(name, "charge", payload))
    assert bench.rows() == {
        "ok": ("done", "ok"),
        "no": ("rejected", "declined"),
        "re": ("waiting", "retry"),
        "half": ("in_doubt", "handler_error"),
    }
    bench.run(bench.record("ok", "charge", 1), bench.record("half", "charge", "raise"))
    assert ran.count("half") == ran.count("ok") == 1
    answers["half"] = ValueError
    bench.run(bench.record("half", "charge", "raise"))
    answers["half"] = NotDone()
    bench.run(bench.record("half", "charge", "raise"))
    assert ran.count("half") == 2
    answers["half"] = Done("found")
    bench.run(bench.record("half", "charge", "raise"))
    assert bench.rows()["half"] == ("done", "ok")
    bench.run(bench.record("re", "charge", "retry"))
    assert ran.count("re") == 1, "it waits"
    report = bench.run(bench.record("later", "charge", 1), recalled=[0])
    assert report.returned == [0]
    bench.run(bench.record("stolen", "charge", "steal"))
    assert bench.state("stolen") == ("running", "claimed"), "what its row says, whose it is now"


def test_external_effects_with_a_transaction_of_their_own(bench: Bench) -> None:
    for name in ("fine", "raise", "deferred"):
        bench.run(bench.record(name, "notify", name))
    assert bench.rows() == {
        "fine": ("done", "ok"),
        "raise": ("in_doubt", "handler_error"),
        "deferred": ("in_doubt", "handler_error"),
    }
    assert bench.effects() == ["fine"]


def test_suspects(bench: Bench, ran: list[str]) -> None:
    landed = bench.record("landed", "pay", {})
    bench.run(landed)
    bench.run(landed, suspect=Suspect(None, (), ("t",)))
    assert ran == ["landed"]
    ends = {
        "timeout": "failed", "worker_died": "dead", "shutdown": "waiting", "cancelled": "cancelled",
    }  # fmt: skip
    for verdict, state in ends.items():
        suspect = Suspect(verdict, (), ("t",), 1, "by ann" if verdict == "cancelled" else None)
        bench.run(bench.record(verdict, "pay", {}), suspect=suspect)
        code = "parked" if state == "waiting" else verdict
        assert bench.rows()[verdict] == (state, code)
    assert next(s for s in bench.statuses if s["id"] == "cancelled")["reason"] == "by ann"
    bench.run(bench.record("none", "none", 5), suspect=suspect)
    assert bench.rows()["none"] == ("cancelled", "cancelled")
    bench.run(bench.record("cancelled", "pay", {}))  # a resend is answered, not run
    bench.run(bench.record(None, "pay", {}), suspect=Suspect(None, (), ("t",)))
    claim = bench.record("claim", "charge", {})
    bench.run(claim)
    bench.query(
        f"UPDATE {bench.schema}.requests SET state = 'running', token = 't' WHERE id = 'claim'"
    )
    bench.run(claim, suspect=Suspect(None, (), ("another",)))
    assert bench.rows()["claim"][0] == "running"  # somebody else's, who may live
    bench.run(claim, suspect=Suspect(None, (), ("t",)))
    assert bench.rows()["claim"] == ("in_doubt", "worker_died")
    assert ran == ["landed", "claim"]


@pytest.mark.parametrize(
    "verdict, not_done",
    [
        ("timeout", ("failed", "timeout")),
        ("cancelled", ("cancelled", "cancelled")),
        (None, ("failed", "worker_died")),
    ],
)
def test_the_check_of_a_call_whose_worker_died_is_asked_at_once(
    bench: Bench, answers: dict[str, Any], verdict: str | None, not_done: tuple[str, str]
) -> None:
    answers.update(done=Done("found"), nothing=NotDone(), fails=ValueError, twice=Done("found"))
    doubt = ("in_doubt", verdict or "worker_died")
    ends = {"done": ("done", "ok"), "nothing": not_done, "unknown": doubt, "fails": doubt,
            "twice": ("in_doubt", verdict or "worker_died")}  # fmt: skip
    for name, end in ends.items():
        call = bench.record(name, "charge", "raise")
        bench.run(call)
        bench.statuses.clear()
        bench.query(
            f"UPDATE {bench.schema}.requests SET state = 'running', token = 't',"
            f" finished_at = NULL WHERE id = '{name}'"
        )
        # Where it may be the check that killed the second worker, it is not asked again.
        deaths = 2 if name == "twice" else 1
        report = bench.run(call, suspect=Suspect(verdict, (), ("t",), deaths))
        assert bench.rows()[name] == end, name
        assert [(s["state"], s["code"]) for s in bench.statuses] == [end]
        assert sum(report.counts.values()) == 1


def test_a_dead_workers_transaction_is_ended_before_the_look_up(bench: Bench) -> None:
    with psycopg.connect(bench.url) as dead:
        row = dead.execute(
            "SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()"
        ).fetchone()
        assert row is not None
        dead.execute(f"INSERT INTO {bench.schema}.effects VALUES ('half')")
        bench.run(
            bench.record("half", "pay", {}), suspect=Suspect(None, ((row[0], row[1]),), ("t",))
        )
        with pytest.raises(psycopg.OperationalError):
            dead.execute("SELECT 1")
    assert bench.effects() == ["half"]


def test_recalled_requests_are_returned_and_leave_nothing(bench: Bench) -> None:
    records = [bench.record(f"r{n}", "pay", {}) for n in range(6)]
    report = bench.run(*records, recalled=[1, 4])
    assert sorted(report.returned) == [1, 4]
    assert bench.effects() == ["r0", "r2", "r3", "r5"]
    bad = [bench.record("bad", "pay", {"raise": True}), bench.record("next", "pay", {})]
    assert bench.run(*bad, recalled=[1]).returned == [1]
    skipped: list[Any] = [("foreign", 0, n, 0, None, b"", [], None, None) for n in range(3)]
    assert sum(bench.run(*skipped, recalled=[1]).counts.values()) == 2


def test_two_executors_on_the_same_ids_leave_one_effect_each(bench: Bench) -> None:
    other = bench.another(bench.url)
    records = [bench.record(f"r{n}", "pay", {"n": n}) for n in range(200)]
    first, bench.executor = bench.executor, other
    threads = []
    for executor in (first, other):

        def race(executor: Any = executor) -> None:
            executor.begin(chunk_run(records))

        threads.append(threading.Thread(target=race))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert bench.effects() == sorted(f"r{n}" for n in range(200))
    assert set(bench.rows().values()) == {("done", "ok")}
    first.close()


def test_without_a_database_requests_are_given_back(bench: Bench) -> None:
    bench.executor.close()
    working = bench.executor
    bench.executor = bench.another("postgresql://nobody@127.0.0.1:1/none")
    malformed, fresh = bench.record("m", None, {}), bench.record("a", "pay", {})
    report = bench.run(malformed, fresh, bench.record("p", "none", 1))
    assert (report.database_up, report.unclear) == (False, [0])
    assert (report.returned, bench.state("a")) == ([1], None)
    assert bench.state("p") == ("done", "ok")
    report = bench.run(fresh, suspect=Suspect(None, (), ("t",)))
    assert (report.returned, report.database_up) == ([0], False)
    bench.executor = working
    assert bench.run(fresh).database_up
    assert bench.rows() == {"a": ("done", "ok")}


def test_what_cannot_be_written_together_is_halved_down_to_the_one_at_fault(
    bench: Bench,
) -> None:
    bench.query(
        f"ALTER TABLE {bench.schema}.requests ADD CONSTRAINT few"
        " CHECK (id <> 'bad' OR state <> 'done')"
    )
    bench.run(*[bench.record(i, "pay", {}) for i in ("a", "b", "bad", "c", "d")])
    rows = bench.rows()
    assert rows.pop("bad") == ("failed", "handler_error")
    assert set(rows.values()) == {("done", "ok")}
    assert bench.effects() == ["a", "b", "c", "d"]
    bench.query(f"ALTER TABLE {bench.schema}.requests ADD CONSTRAINT none CHECK (id <> 'worse')")
    bench.run(bench.record("worse", "pay", {}))
    assert bench.state("worse") == ("failed", "handler_error")
    assert "worse" not in bench.rows()


def test_a_guarded_update_that_misses_its_row_has_the_chunk_redone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.run(bench.record("a", "pay", {"raise": True}))
    looks = []
    find = JournalWriter.find

    def stale_once(self: JournalWriter, cursor: Any, ids: Any) -> Any:
        looks.append(ids)
        found = find(self, cursor, ids)
        if len(looks) == 1:
            return {name: row._replace(run=row.run + 7) for name, row in found.items()}
        return found

    monkeypatch.setattr(JournalWriter, "find", stale_once)
    bench.run(bench.record("a", "pay", {"raise": True}), bench.record("b", "pay", {}))
    assert looks == [["a", "b"], ["a", "b"]]  # redone from the look-up
    assert bench.rows() == {"a": ("failed", "handler_error"), "b": ("done", "ok")}
    assert bench.effects() == ["b"]
