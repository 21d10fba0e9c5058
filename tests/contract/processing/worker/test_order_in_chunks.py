"""Requests of one key keep their order within a chunk, whatever becomes of one of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from feedback.backoff import Backoff
from processing import App, Request
from processing.ipc.frames import Suspect
from processing.worker import bad_luck, chunk_run
from processing.worker.chunk_run import ChunkRun
from stack import Stack
from tests.support.executor import Bench, FakeGate
from tests.support.proxy import Proxy

KEY = b"k"


class RecallingGate(FakeGate):
    """Has what was not started of a chunk recalled once a record is read."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at
        self.chunk: ChunkRun | None = None
        self.recalled: list[int] = []

    def show(self, chunk: int, index: int | None, timeout: float | None, now: float) -> None:
        super().show(chunk, index, timeout, now)
        if index == self.at and self.chunk is not None:
            with self.lock:
                self.recalled = self.chunk.recall()
            self.chunk = None


@pytest.fixture
def ran() -> list[str]:
    return []


@pytest.fixture
def bench(stack: Stack, through: str, schema: str, ran: list[str]) -> Iterator[Bench]:
    """Its executor reaches the database through the proxy."""
    app = App()

    @app.handler("one")
    def one(payload: Any, tx: psycopg.Cursor[Any], request: Request) -> None:
        ran.append(request.id)
        tx.execute(f"INSERT INTO {schema}.effects VALUES (%s)", [request.id])
        if payload and "sql" in payload:
            tx.execute(payload["sql"])

    @app.batch_handler("many")
    def many(requests: list[Request], tx: psycopg.Cursor[Any]) -> list[None]:
        ran.extend(r.id for r in requests)
        return [None for _ in requests]

    @app.handler("charge", effect="external")
    def charge(payload: Any, request: Request) -> None:
        ran.append(request.id)

    @app.handler("pure", effect="none")
    def pure(payload: Any, request: Request) -> None:
        ran.append(request.id)

    @app.batch_handler("pure.many", effect="none")
    def pure_many(requests: list[Request]) -> list[None]:
        ran.extend(r.id for r in requests)
        return [None for _ in requests]

    @app.batch_handler("pure.more", effect="none")
    def pure_more(requests: list[Request]) -> list[None]:
        ran.extend(r.id for r in requests)
        return [None for _ in requests]

    @app.handler("pure.again", effect="none", retries=1)
    def pure_again(payload: Any, request: Request) -> None:
        ran.append(request.id)

    @app.handler("plain")
    def plain(payload: Any, request: Request) -> None:
        ran.append(request.id)

    with psycopg.connect(stack.database, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {schema}.effects (id text)".encode())
    made = Bench(app, through, schema)
    made.url = stack.database
    yield made
    made.executor.close()
    made.app.stop_worker()


@pytest.mark.parametrize("second", ["many", "charge", "pure.again"])
def test_nothing_of_its_key_runs_after_an_unclear_commit(
    bench: Bench, proxy: Proxy, ran: list[str], second: str
) -> None:
    records = [
        bench.record("a", "one", {}, key=KEY),
        bench.record("b", second, {}, key=KEY),
        bench.record("c", "one", {}, key=KEY),
        bench.record("other", second, {}, key=b"other"),
    ]
    proxy.lose_answer(b"COMMIT\0")
    report = bench.run(*records)
    assert (proxy.lost, report.unclear, report.returned) == (1, [0], [1, 2])
    assert ran == ["a", "other"], "another key's goes on"
    bench.run(records[0], suspect=Suspect(None, (), ()))
    bench.run(*records[1:3])
    assert ran == ["a", "other", "b", "c"]


@pytest.mark.parametrize("why", ["recalled", "late"])
@pytest.mark.parametrize("same_key", [True, False])
def test_what_was_not_started_is_no_suspect_of_an_unclear_commit(
    bench: Bench, proxy: Proxy, ran: list[str], monkeypatch: pytest.MonkeyPatch, why: str,
    same_key: bool,
) -> None:  # fmt: skip
    keys = [KEY] * 3 if same_key else [KEY, b"l", b"m"]
    records = [bench.record(n, "one", {}, key=k) for n, k in zip("abc", keys, strict=True)]
    chunk = ChunkRun(1, "token", records, None, FakeGate())
    if why == "late":
        monkeypatch.setattr(chunk_run, "STARTS_FOR", -1.0)  # its first start is over at once
    else:
        chunk.keep([0])
        chunk.recall()
    proxy.lose_answer(b"COMMIT\0")
    report = bench.run_chunk(chunk)
    assert (proxy.lost, report.unclear, sorted(report.returned)) == (1, [0], [1, 2])
    assert (ran, report.database_up) == (["a"], True)


def test_what_was_left_for_the_next_transaction_is_no_suspect_of_an_unclear_commit(
    bench: Bench, proxy: Proxy, ran: list[str]
) -> None:
    """The first one fails, so the transaction ends with its segment."""
    records = [
        bench.record(f"{n:02}", "one", {"sql": "SELECT 1/0"} if n == 0 else {}, key=b"%02d" % n)
        for n in range(30)
    ]
    proxy.lose_answer(b"COMMIT\0")
    report = bench.run(*records)
    segment = list(range(25))
    assert (proxy.lost, sorted(report.unclear), report.returned) == (1, segment, [])
    assert [bench.state(f"{n:02}") for n in range(30)] == [None] * 25 + [("done", "ok")] * 5
    assert set(ran[-5:]) == {f"{n:02}" for n in range(25, 30)}


def test_of_two_halves_the_second_waits_for_an_unclear_first(
    bench: Bench, proxy: Proxy, ran: list[str]
) -> None:
    """The journal refuses `d`, so the chunk is halved; the answer to the first half is lost."""
    bench.query(f"ALTER TABLE {bench.schema}.requests ADD CONSTRAINT no_d CHECK (id <> 'd')")
    records = [bench.record(name, "one", {}, key=KEY) for name in "abcd"]
    proxy.lose_answer(b"COMMIT\0")
    report = bench.run(*records)
    assert (proxy.lost, report.unclear, report.returned) == (1, [0, 1], [2, 3])
    assert bench.effects() == ["a", "b"]


def test_what_was_called_back_is_not_overtaken(bench: Bench, ran: list[str]) -> None:
    records = [
        bench.record("a", "charge", {}, key=KEY),
        bench.record("b", "one", {}, key=KEY),
        bench.record("c", "one", {}, key=b"other"),
    ]
    report = bench.run(*records, recalled=[0])
    assert (report.returned, ran) == ([0, 1], ["c"])


@pytest.mark.parametrize(
    "meets",
    [
        "PERFORM pg_terminate_backend(pg_backend_pid())",
        "RAISE EXCEPTION 'locked' USING ERRCODE = 'lock_not_available'",
        "RAISE EXCEPTION 'deadlock' USING ERRCODE = 'deadlock_detected'",
    ],
)
def test_a_call_waits_for_the_one_before_it_whose_claim_failed(
    bench: Bench, ran: list[str], meets: str
) -> None:
    """The first claim does."""
    bench.query(f"CREATE SEQUENCE {bench.schema}.claims")
    bench.query(
        f"CREATE FUNCTION {bench.schema}.meet() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" IF nextval('{bench.schema}.claims') = 1 THEN {meets}; END IF; RETURN NEW; END $$"
    )
    bench.query(
        f"CREATE TRIGGER meet BEFORE INSERT ON {bench.schema}.requests FOR EACH ROW"
        f" EXECUTE FUNCTION {bench.schema}.meet()"
    )
    keys = {"a": KEY, "b": KEY, "other": b"other", "c": KEY}
    report = bench.run(*(bench.record(name, "charge", {}, key=key) for name, key in keys.items()))
    assert (report.returned, report.unclear, report.database_up) == ([], [], True)
    assert ran == ["other", "a", "b", "c"], "another key's goes on"
    assert {*bench.rows().values()} == {("done", "ok")}


def test_a_call_does_not_overtake_one_whose_claim_is_locked_out_for_good(
    bench: Bench, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That one's end cannot be written either, so it is given back."""
    monkeypatch.setattr(bad_luck, "BETWEEN_TRIES", Backoff(0.0, 0.0))
    bench.executor.close()
    bench.executor = bench.another(bench.url, lock_timeout=0.02)
    records = [bench.record(name, "charge", {}, key=KEY) for name in "ab"]
    bench.run(records[0])
    bench.query(f"UPDATE {bench.schema}.requests SET state = 'failed', run = run + 1")
    records[0] = bench.record("a", "charge", {}, key=KEY)
    with psycopg.connect(bench.url) as somebody:
        somebody.execute(f"SELECT FROM {bench.schema}.requests FOR UPDATE".encode())
        report = bench.run(*records)
    assert (report.returned, ran) == ([0, 1], ["a"])
    bench.run(*records)
    assert ran == ["a", "a", "b"]


@pytest.mark.parametrize("ordering, stay", [("key", [0, 2]), ("partition", [0, 1, 2])])
def test_what_is_read_when_a_recall_comes_overtakes_nothing(
    bench: Bench, ran: list[str], ordering: str, stay: list[int]
) -> None:
    bench.executor.close()
    bench.executor = bench.another(bench.url, ordering=ordering)
    keys = [KEY, b"other", KEY, KEY]
    records = [bench.record(str(n), "one", {}, key=key) for n, key in enumerate(keys)]
    gate = RecallingGate(at=2)
    gate.chunk = chunk = ChunkRun(1, "token", records, None, gate)
    report = bench.run_chunk(chunk)
    gone = [n for n in range(4) if n not in stay]
    assert (gate.recalled, sorted(report.returned), report.unclear) == (gone, gone, [])
    assert ran == [str(n) for n in stay]


@pytest.mark.parametrize(
    "kinds",
    [
        ("one", "pure", "one"),
        ("pure", "one", "pure"),
        ("pure.again", "plain"),
        ("plain", "pure.again", "plain", "pure"),
        ("one", "pure.again", "one"),
        ("pure", "pure.many", "pure"),
        ("pure.many", "pure"),
        ("pure.many", "pure.more", "pure.many"),
        ("pure", "many", "pure"),
        ("pure.many", "many", "pure.many", "pure"),
        ("one", "pure.many", "pure", "pure.many", "charge", "pure"),
    ],
)
def test_types_of_different_effects_keep_the_order_of_their_key(
    bench: Bench, ran: list[str], kinds: tuple[str, ...]
) -> None:
    names = [f"{n}" for n in range(len(kinds))]
    bench.run(*(bench.record(n, kind, {}, key=KEY) for n, kind in zip(names, kinds, strict=True)))
    assert ran == names


@pytest.mark.parametrize("ordering", ["partition", "key"])
def test_types_of_one_partition_keep_its_order_where_that_is_what_is_ordered(
    bench: Bench, ran: list[str], ordering: str
) -> None:
    bench.executor.close()
    bench.executor = bench.another(bench.url, ordering=ordering)
    bench.run(*(bench.record(str(n), k, {}) for n, k in enumerate(("plain", "one", "plain"))))
    assert ran == (["0", "1", "2"] if ordering == "partition" else ["1", "0", "2"])


def test_keys_of_a_chunk_are_locked_in_one_order_and_each_keeps_its_own(
    bench: Bench, ran: list[str]
) -> None:
    keys = {"1": b"b", "2": b"a", "3": b"b", "4": b"a"}
    bench.run(*[bench.record(name, "one", {}, key) for name, key in keys.items()])
    assert ran == ["2", "4", "1", "3"]
