"""How statements reach the caller's database, over whatever kind of connection it has.

What is taken, by what it offers, as nothing is imported that the program does not use:

- SQLAlchemy's sessions and connections, asyncio's among them: `execute(text, {name: value})`; what
  its pools hand out is a driver's connection;
- psycopg's connections and cursors, asyncio's among them, and cursors of its kind whose connection
  is another's, as a handler's `tx`;
- Django's connections and cursors;
- any connection of DB-API 2.0, which has `cursor()`, and any cursor that knows its `connection`;
- else whatever has `execute(sql, parameters)` and `fetchall()`, both plain or both coroutines, with
  `%s` for a parameter. A parameter is a text; rows are sequences or mappings in the order of
  their columns.

A cursor's own rows are left alone: statements run on another cursor of its connection, so in its
transaction. Nothing here begins, commits or rolls back.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any, Final, Protocol

from feedback.outbox.missing_tables import missing_named
from feedback.outbox.steps import Rows, Statement, Steps

_VENDOR: Final = "postgresql"
NAME: Final = "added"
"""Of the one parameter, where parameters have names."""
_MARKS: Final = {"qmark": "?", "numeric": ":1", "named": f":{NAME}"}
"""Of the styles of DB-API that do not know `%s`."""
_SQLALCHEMY_ASYNC: Final = "sqlalchemy.ext.asyncio."
"""Where all of its kinds for asyncio are made."""


class AsyncExecutor(Protocol):
    """What an asyncio connection, session or cursor has: `add` of one returns an awaitable."""

    def execute(self, *args: Any, **kwargs: Any) -> Awaitable[Any]:
        """Runs a statement."""


def run(given: Any, steps: Steps, schema: str) -> list[str] | Awaitable[list[str]]:
    """Takes the steps over this connection; with one of asyncio when it is awaited.

    Raises TypeError for what is no connection, OutboxMissing, and the driver's errors.
    """
    executor = _executor_of(given)
    if executor.asynchronous:
        return _take_async(executor, steps, schema)
    return _take(executor, steps, schema)


class _Executor:
    """One kind of connection."""

    def __init__(self, target: Any) -> None:
        """`target` has cursor()."""
        self._target = target
        self.asynchronous = inspect.iscoroutinefunction(getattr(target, "execute", None))

    def open(self) -> Any:
        """What executes one statement."""
        return self._target.cursor()

    def close(self, cursor: Any) -> Any:
        """Done with it; an awaitable of an asyncio connection."""
        return cursor.close()

    def arguments(self, statement: Statement) -> tuple[Any, ...]:
        """Of execute(), in the driver's own style of parameters."""
        if statement.parameter is None:
            return (statement.sql,)
        driver = sys.modules.get(type(self._target).__module__.partition(".")[0])
        mark = _MARKS.get(getattr(driver, "paramstyle", ""), "%s")
        sql = statement.sql.replace("%s", mark)
        return sql, {NAME: statement.parameter} if NAME in mark else [statement.parameter]


class _Psycopg(_Executor):
    """A connection of psycopg, whose own kind of cursor may have another style of parameters."""

    def open(self) -> Any:
        from psycopg import AsyncCursor, Cursor  # loaded already: this is one of its connections
        from psycopg.rows import tuple_row

        made = AsyncCursor if self.asynchronous else Cursor
        return made(self._target, row_factory=tuple_row)


class _Bare(_Executor):
    """Whatever executes by itself."""

    def open(self) -> Any:
        return self._target

    def close(self, cursor: Any) -> Any:
        """It stays the caller's."""

    def arguments(self, statement: Statement) -> tuple[Any, ...]:
        """Both, as it may have no default for the second one."""
        sql, *parameters = super().arguments(statement)
        return sql, parameters[0] if parameters else []


class _SqlAlchemy(_Bare):
    """A session or connection of SQLAlchemy."""

    def __init__(self, target: Any) -> None:
        super().__init__(target)
        # What stands around its execute() in a class of others' may be no coroutine function.
        modules = (kind.__module__ for kind in type(target).__mro__)
        self.asynchronous = any(f"{name}.".startswith(_SQLALCHEMY_ASYNC) for name in modules)

    def arguments(self, statement: Statement) -> tuple[Any, ...]:
        text = sys.modules["sqlalchemy"].text
        sql = text(statement.sql.replace("%s", f":{NAME}"))
        return (sql,) if statement.parameter is None else (sql, {NAME: statement.parameter})


def _executor_of(given: Any) -> _Executor:
    roots = _roots(given)
    if "sqlalchemy" in roots and hasattr(given, "driver_connection"):
        given = given.driver_connection  # of what a pool hands out
        roots = _roots(given)
    if "sqlalchemy" in roots and _can(given, "execute"):
        return _SqlAlchemy(given)
    if "psycopg" in roots and _can(given, "execute"):
        connection = _connection_of(given)
        # Another's may stand around psycopg's, and makes cursors that keep to its rules.
        return (_Psycopg if "psycopg" in _roots(connection) else _Executor)(connection)
    if "asyncpg" in roots and not _can(given, "fetchall"):
        raise TypeError(
            "a connection of asyncpg has no parameters of the form %s: hand over an object around"
            " it with execute(sql, parameters) and fetchall(), or SQLAlchemy's AsyncConnection"
        )
    if "django" in roots:
        given = getattr(given, "db", given)  # of a cursor, Django's own connection
        if (vendor := getattr(given, "vendor", _VENDOR)) != _VENDOR:
            raise TypeError(f"the outbox needs PostgreSQL, and this is a connection to {vendor}")
    if _can(_connection_of(given), "cursor"):
        return _Executor(_connection_of(given))
    if _can(given, "execute") and _can(given, "fetchall"):
        return _Bare(given)
    # Its class and not itself: a URL holds a password.
    raise TypeError(
        f"{type(given).__name__} is no connection, session or cursor: hand over the one whose"
        " transaction the request belongs to"
    )


def _roots(given: Any) -> set[str]:
    """The packages that its class and those above it are of."""
    return {kind.__module__.partition(".")[0] for kind in type(given).__mro__}


def _connection_of(given: Any) -> Any:
    """Of a cursor the connection that it is of, where it knows."""
    return given if _can(given, "cursor") else getattr(given, "connection", None)


def _can(given: Any, method: str) -> bool:
    return callable(getattr(given, method, None))


def _take(executor: _Executor, steps: Steps, schema: str) -> list[str]:
    rows: Rows | None = None
    while True:
        try:
            statement = next(steps) if rows is None else steps.send(rows)
        except StopIteration as end:
            return _ids(end)
        cursor = executor.open()
        try:
            with missing_named(schema):
                answer = cursor.execute(*executor.arguments(statement))
                rows = _plain(_source(answer, cursor).fetchall())
        finally:
            executor.close(cursor)


async def _take_async(executor: _Executor, steps: Steps, schema: str) -> list[str]:
    rows: Rows | None = None
    while True:
        try:
            statement = next(steps) if rows is None else steps.send(rows)
        except StopIteration as end:
            return _ids(end)
        cursor = executor.open()
        try:
            with missing_named(schema):
                answer = await cursor.execute(*executor.arguments(statement))
                fetched = _source(answer, cursor).fetchall()
                rows = _plain(await fetched if inspect.isawaitable(fetched) else fetched)
        finally:
            closing = executor.close(cursor)
            if inspect.isawaitable(closing):
                await closing


def _ids(end: StopIteration) -> list[str]:
    ids: list[str] = end.value
    return ids


def _source(answer: Any, cursor: Any) -> Any:
    """Where the rows are: SQLAlchemy gives them with its answer, a cursor keeps them."""
    return cursor if _can(cursor, "fetchall") else answer


def _plain(rows: Iterable[Any]) -> Rows:
    """As text, which psycopg gives as bytes where the database has no encoding (SQL_ASCII)."""
    found = [row.values() if isinstance(row, Mapping) else row for row in rows]
    return [tuple(one.decode() if isinstance(one, bytes) else one for one in row) for row in found]
