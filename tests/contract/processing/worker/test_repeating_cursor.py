"""Statements that are run again behave as psycopg's own cursor has them behave."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.adapt import Dumper
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from processing.worker import guarded_cursor
from processing.worker.guarded_cursor import GuardedCursor
from processing.worker.prepared_statements import PreparedStatements
from stack import Stack

TIMES = 8
"""Until psycopg has a statement prepared, and twice more."""
Step = tuple[str, Any]


@pytest.fixture(autouse=True)
def _no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """No transaction is a worker's here, and each statement may be committed by itself."""
    monkeypatch.setattr(guarded_cursor, "refuse_behind_the_end", lambda connection: None)


@pytest.fixture
def connection(stack: Stack, schema: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(stack.database, autocommit=True) as made:
        made._prepared = PreparedStatements()
        made.execute(f"SET search_path TO {schema}".encode())
        made.execute("CREATE TABLE things (id text PRIMARY KEY, n int8, data jsonb)")
        made.execute("INSERT INTO things VALUES ('a', 1, '{}'), ('b', 2, '[1]')")
        yield made


class CountingCursor(GuardedCursor):
    """Counts what was run again."""

    again = 0

    def run_again(self, query: Any, params: Any) -> bool:
        done = super().run_again(query, params)
        self.again += done
        return done


def seen(cursor: psycopg.Cursor[Any], query: str, params: Any) -> Any:
    """All that somebody can see of one execution, which is undone."""
    server = cursor._conn.pgconn  # as the worker does it: psycopg would forget what is prepared
    server.exec_(b"SAVEPOINT here")
    told: Any = None
    try:
        told = cursor.execute(query, params) is cursor
    except Exception as error:  # noqa: BLE001 - what it is is compared
        told = (type(error), str(error))
    rows: Any
    try:
        rows = cursor.fetchall()
    except psycopg.Error as error:
        rows = (type(error), str(error))
    columns = [column.name for column in cursor.description or ()]
    told = told, rows, columns, cursor.rowcount, cursor.statusmessage, cursor.rownumber
    server.exec_(b"ROLLBACK TO here")
    return told


STEPS: list[Step] = [
    ("INSERT INTO things VALUES (%s, %s)", ("c", 3)),
    ("INSERT INTO things VALUES (%s, %s)", ["c", None]),
    ("INSERT INTO things VALUES (%s, %s)", ("c", 2**40)),
    ("INSERT INTO things (id, data) VALUES (%s, %s)", ("c", Jsonb({"x": [1, "é"]}))),
    ("INSERT INTO things VALUES (%s, %s)", ("a", 3)),
    ("INSERT INTO things VALUES (%s, %s) RETURNING n", ("c", 3)),
    ("INSERT INTO things VALUES (%(id)s, %(n)s)", {"id": "c", "n": 4, "more": 5}),
    ("INSERT INTO things VALUES (%(id)s, %(n)s)", {"id": "c"}),
    ("UPDATE things SET n = %s WHERE id = %s", (5, "nobody")),
    ("UPDATE things SET n = n + %s", (5,)),
    ("SELECT id, n, data FROM things WHERE id = ANY(%s) ORDER BY id", (["a", "b"],)),
    ("SELECT id FROM things WHERE id = %s", ("nobody",)),
    ("SELECT %s / n FROM things", (1,)),
    ("SELECT 1 / (n - %s) FROM things", (1,)),
    ("SELECT %s::text", ("a\0b",)),
    ("SELECT %s", (object(),)),
    ("SELECT %s, %s", (1,)),
    ("SELECT %s, %s", (1, 2, 3)),
    ("SELECT %s", {"a": 1}),
    ("SELECT %(a)s", (1,)),
    ("SELECT 1", ()),
    ("SELECT 1", {}),
]


@pytest.mark.parametrize("step", STEPS, ids=range(len(STEPS)))
def test_what_is_run_again_looks_as_with_psycopgs_cursor(
    connection: psycopg.Connection[Any], step: Step
) -> None:
    query, params = step
    good = {  # what makes the statement known, where these parameters do not
        "INSERT INTO things VALUES (%s, %s)": ("z", 3),
        "INSERT INTO things VALUES (%(id)s, %(n)s)": {"id": "z", "n": 4},
        "SELECT 1 / (n - %s) FROM things": (50,),
        "SELECT %s::text": ("a",),
        "SELECT %s": ("a",),
        "SELECT %s, %s": (1, 2),
        "SELECT %(a)s": {"a": 1},
    }.get(query, params)
    mine, theirs = CountingCursor(connection), psycopg.Cursor[Any](connection)
    connection.execute("BEGIN")
    for _ in range(TIMES):
        assert seen(mine, query, good) == seen(theirs, query, good)
    known = mine.again
    assert (known > 0) == bool(good)
    for _ in range(TIMES):
        assert seen(mine, query, params) == seen(theirs, query, params)
    assert seen(mine, query, good) == seen(theirs, query, good)
    assert (mine.again > known) == bool(good)


def known_cursor(connection: psycopg.Connection[Any], query: str, params: Any) -> CountingCursor:
    """A cursor that runs this statement again; what it has done so far is undone."""
    cursor = CountingCursor(connection)
    for _ in range(TIMES):
        connection.pgconn.exec_(b"BEGIN")
        cursor.execute(query, params)
        connection.pgconn.exec_(b"ROLLBACK")
    assert cursor.again
    cursor.again = 0
    return cursor


class Loud(Dumper):
    """Dumps what is registered with it as text in capitals."""

    oid = 25

    def dump(self, obj: Any) -> bytes:
        return str(obj).upper().encode()


def registers(cursor: GuardedCursor) -> None:
    cursor.adapters.register_dumper(str, Loud)


def other_encoding(cursor: GuardedCursor) -> None:
    cursor.execute("SET client_encoding TO latin1")


@pytest.mark.parametrize("change, said", [(registers, "É"), (other_encoding, "é")])
def test_parameters_are_dumped_as_somebody_said_since(
    connection: psycopg.Connection[Any], change: Callable[[GuardedCursor], None], said: str
) -> None:
    cursor = known_cursor(connection, "SELECT %s::text", ("é",))
    change(cursor)
    for _ in range(TIMES):
        assert cursor.execute("SELECT %s::text", ("é",)).fetchall() == [(said,)]


def test_times_come_in_the_zone_of_now(connection: psycopg.Connection[Any]) -> None:
    """The zone is said by a statement that is run again, as each request says its own."""
    said, asked = "SELECT set_config('TimeZone', %s, false)", "SELECT to_timestamp(%s)"
    cursor = CountingCursor(connection)
    for n in range(TIMES):
        cursor.execute(said, (f"Etc/GMT-{n}",))
        (moment,) = cursor.execute(asked, (0.0,)).fetchall()[0]
        assert moment.hour == n
    assert cursor.again


def test_intervals_are_dumped_for_the_style_of_now(connection: psycopg.Connection[Any]) -> None:
    negative, asked = ([timedelta(days=-1, hours=23)],), "SELECT %s::interval[]::text"
    cursor = known_cursor(connection, asked, negative)
    connection.execute("SET IntervalStyle TO sql_standard")
    theirs = psycopg.Cursor[Any](connection).execute(asked, negative).fetchall()
    assert cursor.execute(asked, negative).fetchall() == theirs
    assert cursor.again


def test_what_can_be_dumped_once_is_dumped_once(connection: psycopg.Connection[Any]) -> None:
    """Also where the types of the other parameters are others than before."""
    query = "INSERT INTO things VALUES ('once' || %s, %s, %s) RETURNING data"
    cursor = known_cursor(connection, query, ("", 5, Jsonb([])))
    once = Jsonb(iter([1, 2]), dumps=lambda one: json.dumps(list(one)))
    assert cursor.execute(query, ("!", 70_000, once)).fetchall() == [([1, 2],)]
    assert cursor.again


class HandingLock:
    """A connection's lock; whenever the test's own thread lets go of it, another one has a turn."""

    def __init__(self, turn: Callable[[], object]) -> None:
        self._lock = threading.Lock()
        self._turn = turn

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        if threading.current_thread() is threading.main_thread():
            other = threading.Thread(target=self._turn)
            other.start()
            other.join(60)


def test_statements_of_two_threads_stay_their_own(connection: psycopg.Connection[Any]) -> None:
    """One cursor may be given to both: each of its statements holds the connection's lock."""
    mine, others = "SELECT 1, %s::int", "SELECT 2, %s::int"
    cursor = CountingCursor(connection)
    for _ in range(2):
        cursor.execute(mine, (1,), prepare=True)
        cursor.execute(others, (1,), prepare=True)
    cursor._repeated.clear()
    connection.lock = HandingLock(lambda: cursor.execute(others, (1,)))  # type: ignore[assignment]
    cursor.execute(mine, (1,))
    known = {text: one.query for text, one in cursor._repeated.items()}
    assert known == {text: text.replace("%s", "$1").encode() for text in (mine, others)}


def test_an_old_answer_is_let_go_of(connection: psycopg.Connection[Any]) -> None:
    cursor = known_cursor(connection, "UPDATE things SET n = %s", (1,))
    cursor.execute("SELECT repeat('x', 1000)")
    cursor.execute("UPDATE things SET n = %s", (1,))
    assert cursor._tx.pgresult is None


def test_rows_are_made_as_the_cursor_is_told(connection: psycopg.Connection[Any]) -> None:
    cursor = known_cursor(connection, "SELECT %s::text AS word", ("x",))
    cursor.row_factory = dict_row
    assert cursor.execute("SELECT %s::text AS word", ("y",)).fetchone() == {"word": "y"}
    assert cursor.again == 1


@pytest.mark.parametrize("forgotten", ["DEALLOCATE ALL", "DROP TABLE IF EXISTS others"])
def test_what_the_server_was_told_to_forget_is_prepared_anew(
    connection: psycopg.Connection[Any], forgotten: str
) -> None:
    cursor = known_cursor(connection, "SELECT n FROM things WHERE id = %s", ("a",))
    connection.execute(forgotten.encode())
    for _ in range(2 * TIMES):
        assert cursor.execute("SELECT n FROM things WHERE id = %s", ("b",)).fetchall() == [(2,)]
    assert cursor.again


def test_a_closed_cursor_runs_nothing(connection: psycopg.Connection[Any]) -> None:
    cursor = known_cursor(connection, "SELECT %s::int", (1,))
    cursor.close()
    with pytest.raises(psycopg.InterfaceError, match="closed"):
        cursor.execute("SELECT %s::int", (1,))


def test_a_transaction_begins_where_the_connection_is_to_begin_one(
    connection: psycopg.Connection[Any],
) -> None:
    cursor = known_cursor(connection, "UPDATE things SET n = %s WHERE id = 'a'", (9,))
    cursor.execute("UPDATE things SET n = %s WHERE id = 'a'", (9,))
    connection.autocommit = False
    cursor.execute("UPDATE things SET n = %s WHERE id = 'a'", (10,))
    connection.rollback()
    assert connection.execute("SELECT n FROM things WHERE id = 'a'").fetchone() == (9,)


def test_in_a_pipeline_of_somebody_elses_its_answers_are_there(
    connection: psycopg.Connection[Any],
) -> None:
    cursor = known_cursor(connection, "SELECT %s::int", (1,))
    with connection.pipeline():
        answers = [cursor.execute("SELECT %s::int", (n,)).fetchone() for n in range(3)]
    assert answers == [(0,), (1,), (2,)]


def test_many_texts_are_not_kept_for_ever(connection: psycopg.Connection[Any]) -> None:
    cursor = CountingCursor(connection)
    for n in range(250):
        cursor.execute(f"SELECT %s + {n}", (1,), prepare=True)
        cursor.execute(f"SELECT %s + {n}", (1,))
    assert 0 < len(cursor._repeated) <= 100
