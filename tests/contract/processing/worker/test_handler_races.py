"""Handlers that meet other transactions: what they lose is done again, and is nobody's failure."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from feedback.backoff import Backoff
from processing import App, Reject, Request, RetryPolicy
from processing.worker import bad_luck, transaction
from processing.worker import chunk_run as chunk_run_module
from processing.worker.bisection import Bisection
from processing.worker.chunk_run import ChunkRun
from stack import Stack
from tests.support.executor import Bench, chunk_run
from tests.support.waiting import eventually

ACCOUNTS = 200


@pytest.fixture
def entered() -> Counter[str]:
    return Counter()


def add_probes(app: App, schema: str) -> None:
    """Handlers that go on without a lock that they do not get, or say that they failed for it."""

    def probe(tx: psycopg.Cursor[Any], how: str) -> None:
        try:
            with tx.connection.transaction():
                tx.execute(f"SELECT FROM {schema}.accounts WHERE name = 'a0' FOR UPDATE NOWAIT")
        except psycopg.errors.LockNotAvailable as error:
            if how == "wraps":
                raise RuntimeError("no account") from error
            if how == "groups":
                raise ExceptionGroup("no accounts", [error]) from None
            if how == "wraps the first":
                with contextlib.suppress(RuntimeError):
                    probe(tx, "wraps")
                raise RuntimeError("no account") from error
        raise ValueError("of its own")

    @app.handler("probe")
    def probe_one(payload: str, tx: psycopg.Cursor[Any]) -> None:
        probe(tx, payload)

    @app.batch_handler("probes")
    def probe_each(requests: list[Request], tx: psycopg.Cursor[Any]) -> list[Exception]:
        ends = []
        for request in requests:
            try:
                probe(tx, request.payload)
            except Exception as error:  # noqa: BLE001 - each is the end of its own request
                ends.append(error)
        return ends


def add_fast(app: App, schema: str) -> None:
    @app.handler("fast", pipeline=True)
    def fast(payload: str, request: Request, tx: psycopg.Cursor[Any]) -> None:
        full = "DO $$ BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = '53100'; END $$"
        free = f"UPDATE {schema}.accounts SET cents = cents + 1 WHERE name = 'a0'"
        tx.execute(full if payload == "full" else free)


@pytest.fixture
def bench(stack: Stack, schema: str, entered: Counter[str]) -> Iterator[Bench]:
    app = App()
    add_probes(app, schema)
    add_fast(app, schema)

    @app.handler("transfer")
    def transfer(payload: dict[str, Any], request: Request, tx: psycopg.Cursor[Any]) -> None:
        """As the first example of docs/handlers.md: two accounts, in the order of the payload."""
        entered[request.id] += 1
        move = f"UPDATE {schema}.accounts SET cents = cents + %s WHERE name = %s"
        tx.execute(move, [-1, payload["source"]])
        tx.execute(move, [1, payload["target"]])

    @app.handler("touch", retries=RetryPolicy(attempts=2, on=ZeroDivisionError))
    def touch(payload: dict[str, Any], request: Request, tx: psycopg.Cursor[Any]) -> str:
        entered[request.id] += 1
        tx.execute(f"UPDATE {schema}.accounts SET cents = cents + 1 WHERE name = 'a0'")
        return "touched"

    @app.handler("swallow")
    def swallow(payload: dict[str, Any], request: Request, tx: psycopg.Cursor[Any]) -> str:
        try:
            return touch(payload, request, tx)
        except psycopg.Error:
            return "gave up"

    @app.handler("piped")
    def piped(payload: dict[str, Any], request: Request, tx: psycopg.Cursor[Any]) -> str:
        with tx.connection.pipeline():
            return touch(payload, request, tx)

    @app.handler("polite")
    def polite(payload: dict[str, Any], request: Request, tx: psycopg.Cursor[Any]) -> None:
        entered[request.id] += 1
        try:
            tx.execute(f"SELECT FROM {schema}.accounts WHERE name = 'a0' FOR UPDATE NOWAIT")
        except psycopg.errors.LockNotAvailable:
            raise Reject("occupied") from None

    @app.batch_handler("many")
    def many(requests: list[Request], tx: psycopg.Cursor[Any]) -> list[str]:
        return [touch({}, request, tx) for request in requests]

    with psycopg.connect(stack.database, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {schema}.accounts (name text PRIMARY KEY, cents bigint)")
        connection.execute(
            f"INSERT INTO {schema}.accounts SELECT 'a' || n, 0 FROM generate_series(0, %s) n",
            [ACCOUNTS - 1],
        )
    made = Bench(app, stack.database, schema, lock_timeout=0.05)
    yield made
    made.executor.close()
    made.app.stop_worker()


def cents(bench: Bench) -> list[int]:
    return [row[0] for row in bench.query(f"SELECT cents FROM {bench.schema}.accounts")]


def test_transfers_that_deadlock_all_happen_once(bench: Bench, entered: Counter[str]) -> None:
    """Two workers, chunks that hold the locks of a hundred requests each."""
    seed = random.randrange(10**6)
    draw = random.Random(seed)
    executors = [bench.another(bench.url, lock_timeout=20.0) for _ in range(2)]

    def transfers(name: str) -> list[Any]:
        made = []
        for n in range(100):
            source, target = draw.sample(range(ACCOUNTS), 2)
            payload = {"source": f"a{source}", "target": f"a{target}"}
            made.append(bench.record(f"{name}-{n}", "transfer", payload, key=b"a%d" % source))
        return made

    barrier = threading.Barrier(2)
    rounds = 0
    while rounds < 3 or max(entered.values()) == 1:
        assert rounds < 30, f"nothing deadlocked, seed {seed}"
        chunks = [chunk_run(transfers(f"{rounds}-{w}"), rounds, f"{rounds}-{w}") for w in range(2)]

        def work(worker: int, chunks: Sequence[ChunkRun] = chunks) -> None:
            barrier.wait(60)
            executors[worker].begin(chunks[worker])

        with ThreadPoolExecutor(2) as threads:
            list(threads.map(work, range(2)))
        rounds += 1
    for executor in executors:
        executor.close()
    assert Counter(bench.rows().values()) == {("done", "ok"): 200 * rounds}, f"seed {seed}"
    assert sum(cents(bench)) == 0


@pytest.mark.parametrize("kind", ["touch", "swallow", "many", "piped"])
def test_what_never_gets_its_lock_waits_and_is_no_failure(
    bench: Bench, entered: Counter[str], kind: str
) -> None:
    with psycopg.connect(bench.url) as holder:
        holder.execute(f"UPDATE {bench.schema}.accounts SET cents = 0 WHERE name = 'a0'")
        report = bench.run(bench.record("x", kind, {}))
        assert report.due_in is not None
        assert (bench.rows(), bench.state("x")) == (
            {"x": ("waiting", "retry")},
            ("waiting", "retry"),
        )
        (row,) = bench.query(f"SELECT used, not_before FROM {bench.schema}.requests")
        assert row[0] == 0, "no attempt of the handler's is used up"
        assert row[1] < datetime.now(UTC) + timedelta(minutes=5)
        assert entered["x"] > 2
        holder.rollback()


def test_what_gets_its_lock_in_the_end_is_done(bench: Bench, entered: Counter[str]) -> None:
    with psycopg.connect(bench.url) as holder:
        holder.execute(f"UPDATE {bench.schema}.accounts SET cents = 5 WHERE name = 'a0'")
        with ThreadPoolExecutor(1) as thread:
            running = thread.submit(bench.run, bench.record("x", "touch", {}))
            eventually(lambda: entered["x"] >= 2)
            holder.commit()
            running.result(30)
    assert (bench.rows(), max(cents(bench))) == ({"x": ("done", "ok")}, 6)


def test_a_reject_after_a_lock_that_was_not_waited_for_is_its_own_word(
    bench: Bench, entered: Counter[str]
) -> None:
    with psycopg.connect(bench.url) as holder:
        holder.execute(f"UPDATE {bench.schema}.accounts SET cents = 0 WHERE name = 'a0'")
        bench.run(bench.record("x", "polite", {}))
        holder.rollback()
    assert bench.rows() == {"x": ("rejected", "occupied")}


@pytest.mark.parametrize("kind", ["probe", "probes"])
@pytest.mark.parametrize(
    "how, end",
    [
        ("goes on", ("failed", "handler_error")),
        ("wraps", ("waiting", "retry")),
        ("groups", ("waiting", "retry")),
        ("wraps the first", ("waiting", "retry")),
    ],
)
def test_a_lock_that_a_handler_has_gone_on_without_is_not_why_it_failed(
    bench: Bench, kind: str, how: str, end: tuple[str, str]
) -> None:
    with psycopg.connect(bench.url) as holder:
        holder.execute(f"UPDATE {bench.schema}.accounts SET cents = 0 WHERE name = 'a0'")
        bench.run(bench.record("x", kind, how))
        holder.rollback()
    assert bench.rows() == {"x": end}
    [(error,)] = bench.query(f"SELECT error FROM {bench.schema}.requests")
    assert ("of its own" in error) == (how == "goes on")


def test_who_shares_a_pipeline_with_what_the_database_has_no_room_for_has_not_failed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor where they meet a lock when they are run again."""
    monkeypatch.setattr(bad_luck, "BETWEEN_TRIES", Backoff(0.0, 0.0))
    with psycopg.connect(bench.url) as holder:
        holder.execute(f"UPDATE {bench.schema}.accounts SET cents = 0 WHERE name = 'a0'")
        bench.run(*(bench.record(n, "fast", n) for n in ("full", "x", "y")))
        holder.rollback()
    waiting = ("waiting", "retry")
    assert bench.rows() == {"full": ("failed", "handler_error"), "x": waiting, "y": waiting}


@pytest.mark.parametrize("locked", ["row", "account"])
def test_what_somebody_keeps_locked_holds_its_neighbours_up_hardly_longer_than_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, locked: str
) -> None:
    """The row of a request that was sent again, or what its handler wants, in a chunk of many."""
    monkeypatch.setattr(bad_luck, "BETWEEN_TRIES", Backoff(0.0, 0.0))
    if locked == "account":
        monkeypatch.setattr(bad_luck, "LONGEST_REDO", 0.0)
        monkeypatch.setattr(transaction, "HANDLER_WAIT", 0.05)
    patience = 2.0
    bench.executor.close()
    bench.executor = bench.another(bench.url, lock_timeout=patience)
    x = bench.record("x", "touch", {})
    if locked == "row":
        bench.run(x)
    names = [f"n{n}" for n in range(40)]
    others = [bench.record(n, "transfer", {"source": "a1", "target": "a2"}) for n in names]
    what = {"row": "requests WHERE id = 'x'", "account": "accounts WHERE name = 'a0'"}[locked]
    with psycopg.connect(bench.url) as somebody:
        somebody.execute(f"SELECT FROM {bench.schema}.{what} FOR UPDATE")
        begun = time.monotonic()
        report = bench.run(bench.record("x", "touch", {}), *others)
        took = time.monotonic() - begun
    given_back = [0] if locked == "row" else []
    assert (report.returned, report.alone, report.unclear) == (given_back, given_back, [])
    x_is = ("done", "ok") if locked == "row" else ("waiting", "retry")
    assert bench.rows() == {**dict.fromkeys(names, ("done", "ok")), "x": x_is}
    assert took < 4 * patience, "each transaction has waited as long as the first"


def test_what_somebody_keeps_locked_is_charged_with_what_had_to_be_done_again(
    bench: Bench, entered: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not with what its neighbours took in the end. Each entry of a handler is a second."""
    monkeypatch.setattr(bad_luck, "LONGEST_REDO", 0.0)
    monkeypatch.setattr(chunk_run_module, "monotonic", lambda: float(entered.total()))
    monkeypatch.setattr(chunk_run_module, "STARTS_FOR", 1000.0)
    bench.executor.close()
    bench.executor = bench.another(bench.url, lock_timeout=0.05)
    bench.run(bench.record("x", "touch", {}))
    entered.clear()
    names = [f"n{n}" for n in range(6)]
    others = [bench.record(n, "transfer", {"source": "a1", "target": "a2"}) for n in names]
    with psycopg.connect(bench.url) as somebody:
        somebody.execute(f"SELECT FROM {bench.schema}.requests WHERE id = 'x' FOR UPDATE")
        report = bench.run(bench.record("x", "touch", {}), *others)
    assert (report.alone, bench.rows()) == ([0], dict.fromkeys(["x", *names], ("done", "ok")))
    again = entered.total() - len(names)
    assert again > 0
    assert report.held_up == [again]


def test_what_was_not_to_run_now_is_not_put_off_to_a_time_of_its_own(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delayed request whose row cannot be written; the lock goes at the worst moment."""
    monkeypatch.setattr(bad_luck, "BETWEEN_TRIES", Backoff(0.0, 0.0))
    bench.executor.close()
    bench.executor = bench.another(bench.url, lock_timeout=0.2)
    later = bench.record("x", "touch", {}, ce_notbefore="2035-01-01T00:00:00Z")
    with psycopg.connect(bench.url) as somebody:
        somebody.execute(f"LOCK TABLE {bench.schema}.requests IN SHARE MODE")
        decide = Bisection._decide

        def decide_once_it_is_free(self: Bisection, *args: Any) -> None:
            somebody.rollback()
            decide(self, *args)

        monkeypatch.setattr(Bisection, "_decide", decide_once_it_is_free)
        report = bench.run(later)
    assert (report.returned, report.alone, bench.rows()) == ([0], [0], {})
    assert bench.run(later).returned == []
    assert bench.rows() == {"x": ("waiting", "delayed")}
