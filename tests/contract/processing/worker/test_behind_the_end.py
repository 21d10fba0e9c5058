"""What a handler does after its transaction was ended is not committed by itself, or is a doubt."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from processing import App, Request
from processing.worker.transaction_control import TransactionControlRefused, control_of
from stack import Stack
from tests.support.executor import bench_with_effects

REFUSED, ENDED = ("failed", "handler_error"), ("in_doubt", "transaction_ended")
DONE = ("done", "ok")


def _block(tx: Any) -> None:
    with tx.connection.transaction() as block:
        tx.execute("SELECT 1")
    block.connection.rollback()


def _copy(tx: Any) -> None:
    with tx.copy("COPY (SELECT 1) TO STDOUT") as copy:
        list(copy)
    copy.connection.rollback()


def _escaped(tx: Any) -> None:
    tx.execute(r"SELECT E'\''; ROLLBACK; --'")


def _nested(tx: Any) -> None:
    tx.execute("/* /* */ ' */ SELECT 1; ROLLBACK; --'")


def _as_set(tx: Any) -> None:
    tx.execute("SET LOCAL standard_conforming_strings = off")
    tx.execute(r"SELECT '\''; ROLLBACK; --'")


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("end", [_block, _copy, _escaped, _nested, _as_set])
def test_what_would_roll_back_the_transaction_is_refused(
    stack: Stack, schema: str, end: Callable[[Any], None], batch: bool
) -> None:
    app = App()

    def pay(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        if payload:
            end(tx)
        tx.execute(f"INSERT INTO {schema}.effects VALUES (%s)", [request.id])

    @app.batch_handler("batch")
    def pay_all(requests: list[Request[Any]], tx: psycopg.Cursor[Any]) -> list[Any]:
        for request in requests:
            pay(request.payload, tx, request)
        return [None] * len(requests)

    app.handler("pay")(pay)
    with bench_with_effects(app, stack.database, schema) as bench:
        for _ in range(2):
            bench.run(*(bench.record(n, "batch" if batch else "pay", n == "b") for n in "abc"))
        if batch:
            assert (bench.effects(), set(bench.rows().values())) == ([], {REFUSED})
        else:
            assert bench.effects() == ["a", "c"]
            assert bench.rows() == {"a": DONE, "b": REFUSED, "c": DONE}


def _again(tx: Any, table: str) -> None:
    tx.execute(f"INSERT INTO {table} VALUES (%s)", ["late"])


def _copy_in(tx: Any, table: str) -> None:
    with tx.copy(f"COPY {table} FROM STDIN") as copy:
        copy.write_row(["late"])


def _in_a_block(tx: Any, table: str) -> None:
    with tx.connection.transaction():
        psycopg.Cursor.execute(tx, f"INSERT INTO {table} VALUES ('late')")


WAYS: dict[str, Callable[[Any, str], Any]] = {
    "plain": lambda tx, table: tx.execute(f"INSERT INTO {table} VALUES ('late')"),
    "kept by the server": _again,
    "many": lambda tx, table: tx.executemany(f"INSERT INTO {table} VALUES (%s)", [["late"]]),
    "stream": lambda tx, table: [*tx.stream(f"INSERT INTO {table} VALUES ('late') RETURNING id")],
    "copy": _copy_in,
    "connection": lambda tx, table: tx.connection.execute(f"INSERT INTO {table} VALUES ('late')"),
    "block": _in_a_block,
}


@pytest.mark.parametrize("how", WAYS)
def test_statements_behind_a_rollback_are_refused(stack: Stack, schema: str, how: str) -> None:
    app, refused = App(), list[str]()

    @app.handler("pay")
    def pay(payload: Any, tx: Any) -> None:
        if payload == "late":
            tx._conn.pgconn.exec_(b"ROLLBACK")
            try:
                WAYS[how](tx, f"{schema}.effects")
            except TransactionControlRefused as error:
                refused.append(str(error))
        else:
            _again(tx, f"{schema}.effects")

    with bench_with_effects(app, stack.database, schema) as bench:
        bench.run(*(bench.record(f"a{n}", "pay") for n in range(9)))  # the server keeps it then
        bench.query(f"TRUNCATE {schema}.effects")
        for _ in range(2):
            bench.run(bench.record("b", "pay", "late"))
        assert bench.effects() == []
        assert ["committed by itself" in error for error in refused] == [True]
        assert bench.rows()["b"] == bench.state("b") == ENDED


def test_what_was_committed_behind_a_rollback_is_not_done_again(stack: Stack, schema: str) -> None:
    app = App()

    @app.handler("pay")
    def pay(payload: Any, tx: Any, request: Request[Any]) -> None:
        if payload:
            tx._conn.pgconn.exec_(b"ROLLBACK")
        psycopg.Cursor.execute(tx, f"INSERT INTO {schema}.effects VALUES (%s)", [request.id])

    with bench_with_effects(app, stack.database, schema) as bench:
        for _ in range(3):
            bench.run(*(bench.record(n, "pay", n == "b") for n in "abc"))
        assert bench.effects() == ["a", "b", "c"]
        assert bench.rows() == {"a": DONE, "b": ENDED, "c": DONE}


def test_nor_is_what_a_batch_does_behind_one(stack: Stack, schema: str) -> None:
    app = App()

    @app.batch_handler("batch")
    def pay_all(requests: list[Request[Any]], tx: Any) -> list[Any]:
        for request in requests:
            if request.payload:
                tx._conn.pgconn.exec_(b"ROLLBACK")
            with contextlib.suppress(TransactionControlRefused):
                tx.execute(f"INSERT INTO {schema}.effects VALUES (%s)", [request.id])
        return [None] * len(requests)

    with bench_with_effects(app, stack.database, schema) as bench:
        for _ in range(2):
            bench.run(*(bench.record(n, "batch", n == "b") for n in "abc"))
        assert (bench.effects(), set(bench.rows().values())) == ([], {ENDED})


def test_nor_is_what_others_of_a_pipeline_do_behind_one(stack: Stack, schema: str) -> None:
    app = App()

    @app.handler("pay", pipeline=True)
    def pay(payload: Any, tx: Any, request: Request[Any]) -> None:
        if payload:
            psycopg.Cursor.execute(tx, "ROLLBACK")
        # For these psycopg waits, and for what was sent before.
        tx.executemany(f"INSERT INTO {schema}.effects VALUES (%s)", [[request.id]])

    with bench_with_effects(app, stack.database, schema) as bench:
        for _ in range(3):
            bench.run(*(bench.record(n, "pay", n == "b") for n in "abcd"))
        assert bench.effects() == sorted(set(bench.effects())), "an effect twice"
        assert set(bench.rows().values()) == {ENDED}


STATEMENTS = [
    r"SELECT E'\''; {}; --'",
    r"SELECT E'a''\'b'; {}; --'",
    r"SELECT e'\\'; {}; --'",
    "SELECT E'a'\n'\\''; {}; --'",
    "SELECT E'a' --b\n --c\n\t'\\''; {}; --'",
    "SELECT E'a' '\\''; {}; --'",
    "SELECT 'a'\n'\\'; {}; --'",
    r"SELECT '\'; {}; --'",
    r"SELECT '\'''; {}; --'",
    r"SELECT name'\'; {}; --'",
    r"SELECT U&'\'; {}; --'",
    r"SELECT U&'\\'; {}; --'",
    r"SELECT N'\'; {}; --'",
    r"SELECT B'\'; {}; --'",
    'SELECT 1 AS "a"";\'"; {}; --\'',
    "SELECT 1 AS U&\"'\"; {}; --'",
    "SELECT 1 --a\r; {}",
    "SELECT 1-- '\n; {}; --'",
    "/* /* */ ' */ SELECT 1; {}; --'",
    "SELECT 1 /* ; /* */ ; {} */",
    "SELECT 1 AS a$b$; {}; SELECT 1 AS b$b$",
    "SELECT 1 AS é$$; {}; SELECT 1 AS b$$",
    "SELECT $é$'$é$; {}; --'",
    "SELECT $$ ; {} $$",
    "SELECT $a$ $b$ ; {}; $a$; SELECT 1 AS c$b$",
]


@pytest.mark.parametrize("setting", ["on", "off"])
def test_the_guard_reads_statements_as_the_server_does(stack: Stack, setting: str) -> None:
    ended = dict[str, bool]()
    with psycopg.connect(stack.database) as connection:
        for statement in STATEMENTS:
            connection.rollback()
            connection.execute(f"SET LOCAL standard_conforming_strings = {setting}")
            try:
                connection.execute(statement.format("ROLLBACK"))
            except psycopg.Error:
                continue  # nothing of it is done
            status = connection.info.transaction_status
            ended[statement] = status == psycopg.pq.TransactionStatus.IDLE
    assert len(ended) > 12
    escapes = setting == "off"
    found = {s: control_of(s.format("ROLLBACK"), escapes=escapes).ends for s in ended}
    assert found == ended
