"""What an end leaves behind: named states whatever user code raises, honest times and counts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from pydantic import BaseModel, field_validator

from feedback.journal.database_errors import Overtaken
from feedback.journal.writer import JournalWriter
from processing import App, Done, NotDone, Reject, Request
from processing.handlers.decoder import Message
from processing.ipc.frames import Suspect
from processing.worker import executor as execution
from stack import Stack
from tests.support.backends import backend_of, stopped
from tests.support.executor import Bench, bench_with_effects, chunk_run


class Silent(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Stubborn(BaseException):
    """Nobody's Exception."""

    def __str__(self) -> str:
        raise SystemExit(4)


class Wordless(Reject):
    """A Reject that never called its own start."""

    def __init__(self) -> None:
        pass


def _recurse() -> None:
    _recurse()


def _raise(what: Any) -> None:
    match what:
        case "exit":
            raise SystemExit(3)
        case "silent":
            raise Silent
        case "stubborn":
            raise Stubborn
        case "interrupt":
            raise KeyboardInterrupt
        case "memory":
            raise MemoryError
        case "recursion":
            _recurse()
        case "wordless":
            raise Wordless


EVIL = ("exit", "silent", "stubborn", "interrupt", "memory", "recursion", "wordless")


class Checked(BaseModel):
    """A payload whose validator misbehaves."""

    what: str

    @field_validator("what")
    @classmethod
    def _look(cls, value: str) -> str:
        _raise(value)
        return value


def make_app(schema: str, seen: list[str]) -> App:  # noqa: C901 - a list of handlers
    app = App()

    @app.handler("pay")
    def pay(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> Any:
        seen.append(request.id)
        tx.execute(f"INSERT INTO {schema}.effects VALUES (%s)", (request.id,))
        if isinstance(payload, dict) and "sleep" in payload:
            time.sleep(payload["sleep"])
        if payload == "fail":
            raise ValueError("boom")
        _raise(payload)
        return None

    @app.handler("checked")
    def checked(payload: Checked) -> None:
        seen.append(payload.what)

    @app.handler("outside")
    def outside(payload: Any) -> str:
        with psycopg.connect(payload, autocommit=True) as other:
            (state,) = other.execute(
                "SELECT state FROM pg_stat_activity WHERE application_name LIKE 'oncepool worker%%'"
                " AND query LIKE %s",
                (f"%{schema}%",),
            ).fetchone() or ("?",)
        return str(state)

    @app.handler("marked", fingerprint=lambda payload: _raise(payload) or "mark")
    def marked(payload: Any) -> None:
        seen.append("marked")

    @app.handler("pure", effect="none")
    def pure(payload: Any) -> None:
        _raise(payload)

    @app.batch_handler("batch")
    def batch(requests: list[Request[Any]]) -> list[Any]:
        for request in requests:
            _raise(request.payload)
        return [None] * len(requests)

    def check(request: Request[Any]) -> Done:
        _raise(request.payload)
        return Done()

    @app.handler("charge", effect="external", check=check, timeout=5)
    def charge(payload: Any, request: Request[Any]) -> None:
        seen.append(request.id)
        _raise(payload)

    @app.decoder("foreign")
    def foreign(message: Any) -> Message:
        seen.append("decoded")
        what = (message.value or b"").decode()
        _raise(what)
        key: Any = "text" if what == "key" else None
        content: Any = 5 if what == "content" else "application/json"
        return Message(f"d-{message.offset}", "pay", {}, key=key, content_type=content)

    return app


@pytest.fixture
def seen() -> list[str]:
    return []


@pytest.fixture
def bench(stack: Stack, schema: str, seen: list[str]) -> Iterator[Bench]:
    with bench_with_effects(make_app(schema, seen), stack.database, schema) as made:
        yield made


def foreign(offset: int, value: bytes) -> Any:
    return ("foreign", 0, offset, 1_700_000_000_000, None, value, [], None, None)


# Whatever user code raises


@pytest.mark.parametrize("evil", EVIL)
def test_whatever_user_code_raises_is_the_end_of_that_one_request(bench: Bench, evil: str) -> None:
    report = bench.run(
        bench.record("before", "pay", {}),
        bench.record("pay", "pay", evil),
        bench.record("checked", "checked", {"what": evil}),
        bench.record("marked", "marked", evil),
        bench.record("pure", "pure", evil),
        bench.record("batch", "batch", evil),
        bench.record("charge", "charge", evil),
        foreign(1, evil.encode()),
        foreign(2, b"fine"),
        bench.record("after", "pay", {}),
    )
    rejects = evil == "wordless"
    assert rejects or bench.rows() == {
        "before": ("done", "ok"),
        "pay": ("failed", "handler_error"),
        "checked": ("failed", "handler_error"),
        "marked": ("failed", "handler_error"),
        "batch": ("failed", "handler_error"),
        "charge": ("in_doubt", "handler_error"),
        "d-2": ("done", "ok"),
        "after": ("done", "ok"),
    }
    assert bench.rows()["after"] == ("done", "ok")
    assert bench.state("pure") == ("failed", "handler_error")
    assert bench.letters() == [("malformed", None)]
    assert bench.effects() == ["after", "before", "d-2"]
    assert (report.returned, report.unclear) == ([], [])
    # The check of what is in doubt raises the same.
    bench.run(bench.record("charge", "charge", evil))
    assert bench.rows()["charge"] == ("in_doubt", "handler_error")


@pytest.mark.parametrize("odd", [b"key", b"content"])
def test_a_decoder_that_returns_odd_things_makes_dead_letters(bench: Bench, odd: bytes) -> None:
    bench.run(foreign(1, odd), foreign(2, b"fine"))
    assert bench.letters() == [("malformed", "d-1")]
    assert bench.rows() == {"d-2": ("done", "ok")}


def test_without_a_database_what_a_decoder_read_is_given_back(bench: Bench) -> None:
    bench.executor.close()
    working, bench.executor = bench.executor, bench.another("postgresql://nobody@127.0.0.1:1/none")
    report = bench.run(foreign(1, b"fine"), bench.record("a", "pay", {}))
    assert sorted(report.returned) == [0, 1]
    assert (bench.state("d-1"), bench.state("a")) == (None, None)
    bench.executor = working


def test_what_nobody_thought_of_ends_one_request(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from processing.worker.calls import Calls

    one = Calls.one

    def fail(self: Calls, task: Any, handler: Any) -> None:
        if task.envelope.id == "r3":
            raise RecursionError("in the executor itself")
        one(self, task, handler)

    monkeypatch.setattr(Calls, "one", fail)
    bench.run(*[bench.record(f"r{n}", "pay", {}) for n in range(6)])
    rows = bench.rows()
    assert rows.pop("r3") == ("failed", "handler_error")
    assert set(rows.values()) == {("done", "ok")}
    assert bench.effects() == sorted(rows)


def test_a_record_that_cannot_even_be_read_is_a_dead_letter(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = execution.read_task

    def read(app: App, index: int, *more: Any, **options: Any) -> Any:
        if index == 1:
            raise RecursionError("nobody thought of it")
        return real(app, index, *more, **options)

    monkeypatch.setattr(execution, "read_task", read)
    bench.run(*(bench.record(f"r{n}", "pay", {}) for n in range(3)))
    assert (set(bench.rows()), bench.letters()) == ({"r0", "r2"}, [("malformed", None)])


def test_a_dead_letter_that_the_journal_refuses_is_neither_told_nor_counted(bench: Bench) -> None:
    bench.query(f"ALTER TABLE {bench.schema}.dead_letters ADD CHECK (request_id <> 'm-1')")
    report = bench.run(*(bench.record(f"m-{n}", None, {}) for n in range(3)))

    assert bench.letters() == [("malformed", "m-0"), ("malformed", "m-2")]
    assert [status["id"] for status in bench.statuses] == ["m-0", "m-2"]
    assert report.counts == {("", "dead_letter", "malformed"): 2}
    assert (report.unclear, report.returned) == ([], [])


def test_what_fails_between_the_steps_ends_the_requests_that_are_left(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(execution, "groups", fail)
    bench.run(*(bench.record(f"r{n}", "pay", {}) for n in range(2)))
    assert set(bench.rows().values()) == {("failed", "handler_error")}
    assert "a bug" in bench.statuses[-1]["error"]


def test_a_suspect_whose_dead_workers_session_stays_is_looked_at_later(
    bench: Bench, stack: Stack
) -> None:
    """So is one that nobody can read, which would be a dead letter."""
    with closing(psycopg.connect(stack.database, autocommit=True)) as dead:
        backend = backend_of(dead)
        suspect = Suspect(None, (backend,), ("t",), 1)
        with stopped(backend[0]):
            for record in (bench.record("a", "pay", {}), bench.record(None, "pay", {})):
                report = bench.run(record, suspect=suspect)
                assert (report.returned, report.unended) == ([0], [backend])
                assert (report.database_up, report.counts, bench.rows()) == (True, {}, {})
            report = bench.run(bench.record("p", "pure", {}), suspect=suspect)
            assert (report.returned, report.unended) == ([], None), "it needs no journal"


def test_what_is_overtaken_again_and_again_is_given_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = JournalWriter.insert_done

    def insert(self: JournalWriter, cursor: Any, rows: list[bytes]) -> None:
        if any(b"bad" in row for row in rows):
            raise Overtaken("bad")
        real(self, cursor, rows)

    monkeypatch.setattr(JournalWriter, "insert_done", insert)
    report = bench.run(*(bench.record(name, "pay", {}) for name in ("a", "bad", "c")))
    assert (report.returned, bench.state("bad")) == ([1], None)
    assert (set(bench.rows()), bench.effects()) == ({"a", "c"}, ["a", "c"])


def test_what_was_recalled_before_it_was_looked_up_is_left_to_others(bench: Bench) -> None:
    record = bench.record("a", "pay", {})
    bench.run(record)
    report = bench.run(record, bench.record("b", "pay", {}), recalled=[0])
    assert report.returned == [0]
    assert bench.query(f"SELECT resends FROM {bench.schema}.requests WHERE id = 'a'") == [(0,)]


def test_what_was_recalled_is_no_dead_letter_here_and_is_counted_once(bench: Bench) -> None:
    records = [bench.record(f"m{n}", None, {}) for n in range(4)]
    assert sum(bench.run(*records, recalled=[1, 2]).counts.values()) == 2
    assert [name for _, name in bench.letters()] == ["m0", "m3"]
    assert sum(bench.run(*records[1:3]).counts.values()) == 2
    assert sorted(name for _, name in bench.letters()) == ["m0", "m1", "m2", "m3"]


def test_a_verdict_is_stored_without_any_code_of_the_users(bench: Bench, seen: list[str]) -> None:
    dead = Suspect("worker_died", (), ("t",), 2)
    bench.run(bench.record("c", "checked", {"what": "fine"}), suspect=dead)
    bench.run(bench.record("m", "marked", {}), suspect=dead)
    bench.run(foreign(1, b"fine"), suspect=dead)
    assert seen == []
    assert bench.rows() == {"c": ("dead", "worker_died"), "m": ("dead", "worker_died")}
    detail = bench.query(f"SELECT detail FROM {bench.schema}.dead_letters")
    assert "decoder of topic 'foreign' was not run again" in detail[0][0]


# Crashes


def crashes(bench: Bench, name: str) -> tuple[Any, ...]:
    (row,) = bench.query(
        f"SELECT state, run, crashes FROM {bench.schema}.requests WHERE id = '{name}'"
    )
    return row


def attempts(bench: Bench, name: str) -> list[tuple[Any, ...]]:
    return bench.query(
        f"SELECT run, code FROM {bench.schema}.attempts WHERE request_id = '{name}' ORDER BY run"
    )


def test_crashes_are_counted_and_each_is_in_the_timeline(bench: Bench) -> None:
    bench.run(bench.record("dead", "pay", {}), suspect=Suspect("worker_died", (), ("t",), 2))
    assert crashes(bench, "dead") == ("dead", 2, 2)
    assert attempts(bench, "dead") == [(1, "worker_died"), (2, "worker_died")]
    # Also when they were, and how their workers ended.
    now = time.monotonic()
    losses = ((now - 9, now - 8, "signal SIGSEGV"), (now - 4, now - 2, "exit code 9"))
    dead = Suspect("worker_died", (), ("t",), 2, losses=losses)
    bench.run(bench.record("seen", "pay", {}), suspect=dead)
    lines = bench.query(
        "SELECT error, round(extract(epoch FROM ended_at - started_at)), ended_at < now()"
        f" FROM {bench.schema}.attempts WHERE request_id = 'seen' ORDER BY run"
    )
    assert lines == [
        ("its worker died while it ran (signal SIGSEGV)", 1, True),
        ("its worker died while it ran (exit code 9)", 2, True),
    ]
    bench.run(bench.record("once", "pay", {}), suspect=Suspect(None, (), ("t",), 1))
    assert crashes(bench, "once") == ("done", 2, 1)
    assert attempts(bench, "once") == [(1, "worker_died")]
    # Killed for its time is no crash.
    bench.run(bench.record("late", "pay", {}), suspect=Suspect("timeout", (), ("t",), 1))
    assert crashes(bench, "late") == ("failed", 1, 0)
    assert attempts(bench, "late") == [(1, "timeout")]


def test_a_crash_of_an_earlier_delivery_counts(bench: Bench, seen: list[str]) -> None:
    bench.run(bench.record("r", "pay", "fail"), suspect=Suspect(None, (), ("t",), 1))
    assert crashes(bench, "r") == ("failed", 2, 1)
    bench.run(bench.record("r", "pay", "fail"), suspect=Suspect(None, (), ("t",), 1))
    assert crashes(bench, "r") == ("dead", 3, 2)
    assert attempts(bench, "r") == [(1, "worker_died"), (2, "handler_error"), (3, "worker_died")]
    assert seen.count("r") == 1  # the second copy's two deaths are enough


def test_a_claim_whose_worker_died_counts_the_crash(bench: Bench) -> None:
    bench.run(bench.record("c", "charge", {}))
    bench.query(f"UPDATE {bench.schema}.requests SET state = 'running', token = 't'")
    dead = Suspect(None, (), ("t",), 1, losses=((1.0, 2.0, "signal SIGSEGV"),))
    bench.run(bench.record("c", "charge", {}), suspect=dead)
    # Its check knows that it happened all the same.
    assert crashes(bench, "c") == ("done", 1, 1)
    assert attempts(bench, "c") == [(1, "worker_died")]


# Times


def test_an_end_is_timed_when_the_handler_ended(bench: Bench) -> None:
    began = datetime.now(UTC)
    bench.run(bench.record("a", "pay", {"sleep": 0.3}), bench.record("b", "pay", {"sleep": 0.3}))
    rows = dict(bench.query(f"SELECT id, finished_at FROM {bench.schema}.requests"))
    assert (rows["a"] - began).total_seconds() >= 0.3
    assert (rows["b"] - rows["a"]).total_seconds() >= 0.3
    told = {s["id"]: datetime.fromisoformat(s["at"]) for s in bench.statuses}
    assert told == rows


def test_an_attempt_never_ends_before_it_started(bench: Bench) -> None:
    bench.run(bench.record("slow", "pay", {"sleep": 0.2}), bench.record("r", "pay", "fail"))
    bench.run(bench.record("c", "charge", "silent"), bench.record("t", "nobody", {}))
    lines = bench.query(f"SELECT request_id, started_at, ended_at FROM {bench.schema}.attempts")
    assert {name for name, _, _ in lines} == {"r", "c", "t"}
    assert all(started <= ended for _, started, ended in lines)


def test_no_transaction_is_open_while_a_handler_without_tx_runs(bench: Bench, stack: Stack) -> None:
    bench.run(bench.record("p", "pay", {}), bench.record("o", "outside", stack.database))
    told = {s["id"]: s.get("result") for s in bench.statuses}
    assert told == {"p": None, "o": "idle"}
    assert bench.rows() == {"p": ("done", "ok"), "o": ("done", "ok")}


# Conflicts


def test_a_conflict_tells_the_status_that_stands(bench: Bench) -> None:
    bench.run(bench.record("a", "pay", {"n": 1}))
    (stood,) = bench.statuses
    bench.statuses.clear()
    report = bench.run(bench.record("a", "pay", {"n": 2}, ce_replyto="me"))
    (told,) = bench.statuses
    same = ("v", "id", "type", "state", "code", "fingerprint")
    assert [told[name] for name in same] == [stood[name] for name in same]
    assert report.counts == {("pay", "dead_letter", "conflict"): 1}


def test_a_conflict_with_a_type_that_makes_its_own_fingerprint_tells_none(bench: Bench) -> None:
    bench.run(bench.record("m", "marked", {}))
    bench.statuses.clear()
    bench.run(bench.record("m", "pay", {}))
    (told,) = bench.statuses
    assert told["type"] == "marked"
    assert "fingerprint" not in told


def test_a_conflict_that_is_sent_again_is_one_dead_letter(bench: Bench) -> None:
    bench.run(bench.record("a", "pay", {"n": 1}))
    for _ in range(3):
        bench.run(bench.record("a", "pay", {"n": 2}))
    assert bench.letters() == [("conflict", "a")]
    bench.run(bench.record("a", "pay", {"n": 3}))
    bench.run(bench.record("a", "pay", None))
    assert bench.letters() == [("conflict", "a")] * 3


@pytest.mark.parametrize("payload", [{}, {"another": 1}], ids=["copy", "conflict"])
def test_what_is_done_is_told_so_though_its_copy_cannot_be_noted(
    stack: Stack, schema: str, payload: dict[str, Any]
) -> None:
    app = App()
    app.handler("pay")(lambda payload: "paid")
    bench = Bench(app, stack.database, schema)
    bench.run(bench.record("a", "pay", {}))
    bench.query(f"UPDATE {schema}.requests SET resends = 2147483647")
    bench.query(f"ALTER TABLE {schema}.dead_letters ADD CHECK (reason <> 'conflict')")
    bench.run(bench.record("b", "pay", {}), bench.record("a", "pay", payload))
    assert (bench.state("a"), bench.state("b")) == (("done", "ok"), ("done", "ok"))
    assert {status["state"] for status in bench.statuses} == {"done"}
    bench.executor.close()


def test_what_its_check_takes_is_not_a_calls_time(stack: Stack, schema: str) -> None:
    """Its deadline is that of the call, or a long check would have it killed: in doubt again."""
    events: list[str] = []
    app = App()

    def check(request: Request[Any]) -> NotDone:
        events.append("check")
        return NotDone()

    @app.handler("charge", effect="external", check=check)
    def charge(payload: Any) -> None:
        events.append("call")
        if payload == "raise":
            raise ValueError

    bench = Bench(app, stack.database, schema)
    record = bench.record("c", "charge", "raise")
    bench.run(record)
    assert bench.rows() == {"c": ("in_doubt", "handler_error")}
    events.clear()
    chunk = chunk_run([record])

    def show(_chunk: int, _index: int | None, timeout: float | None, _now: float) -> None:
        events.append("shown with a deadline" if timeout else "shown")

    chunk._gate.show = show  # type: ignore[method-assign]
    bench.run_chunk(chunk)
    # Nor what its claim takes.
    assert events[events.index("check") :] == ["check", "shown", "shown with a deadline", "call"]
    bench.executor.close()
