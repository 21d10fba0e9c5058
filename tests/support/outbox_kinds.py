"""A connection of every kind that takes requests for an outbox.

All kinds are those of the packages themselves; `dbapi` is a driver that only keeps to DB-API 2.0,
and gives rows as mappings; `pool` is what the pool of SQLAlchemy hands out, around a driver's own;
`guarded` is what a handler has of its `tx`; `bare` has what the guide asks of anything else, and
nothing more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    ExitStack,
    asynccontextmanager,
    closing,
    contextmanager,
)
from functools import partial
from typing import Any, NamedTuple, TypeVar
from unittest.mock import patch

import asyncpg
import django
import django.db
import pg8000.dbapi
import psycopg
import psycopg2
import psycopg2.extras
import scramp.core
import sqlalchemy
from django.conf import settings
from django.db import transaction
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import class_row, dict_row
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as sqlalchemy_asyncio

from processing.worker.guarded_cursor import GuardedCursor

T = TypeVar("T")


class Opened(NamedTuple):
    """A connection, session or cursor in a transaction, and how that ends."""

    given: Any
    commit: Callable[[], Any]
    rollback: Callable[[], Any]
    write: Callable[[str], Any]
    """Executes a statement of the caller's own."""


class DbapiConnection:
    """Nothing but what DB-API 2.0 has."""

    def __init__(self, url: str, *, autocommit: bool) -> None:
        self._connection = psycopg.connect(url, autocommit=autocommit, row_factory=dict_row)
        self.commit = self._connection.commit
        self.rollback = self._connection.rollback
        self.close = self._connection.close

    def cursor(self) -> DbapiCursor:
        """A new one."""
        return DbapiCursor(self._connection.cursor())


class DbapiCursor:
    """Nothing but what DB-API 2.0 has."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor
        self.fetchall = cursor.fetchall
        self.close = cursor.close

    def execute(self, sql: str, parameters: Any = None) -> None:
        """Returns nothing, as the standard leaves that open."""
        self._cursor.execute(sql, parameters)


class Bare:
    """What the guide asks of anything else: nothing but these two, and both parameters."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def execute(self, sql: str, parameters: Sequence[str]) -> None:
        """Keeps the rows."""
        self._cursor.execute(sql, parameters)

    def fetchall(self) -> list[Any]:
        """Of the statement before."""
        rows: list[Any] = self._cursor.fetchall()
        return rows


class BareAsync:
    """The same around a connection of asyncpg."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._rows: list[Any] = []

    async def execute(self, sql: str, parameters: Sequence[str]) -> None:
        """Keeps the rows."""
        self._rows = await self._connection.fetch(sql.replace("%s", "$1"), *parameters)

    async def fetchall(self) -> list[Any]:
        """Of the statement before."""
        return self._rows


class Atomic:
    """Django's way: its connection is in autocommit mode, but inside blocks."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Enters a block."""
        self._block = transaction.atomic()
        self._block.__enter__()

    def commit(self) -> None:
        """Leaves the block, and enters another one."""
        self._block.__exit__(None, None, None)
        self.begin()

    def rollback(self) -> None:
        """As an exception does that leaves the block."""
        self.end()
        self.begin()

    def end(self) -> None:
        """Leaves the block, of which nothing stays."""
        transaction.set_rollback(True)
        self._block.__exit__(None, None, None)


@contextmanager
def _psycopg(url: str, kind: str) -> Iterator[Opened]:
    with ExitStack() as stack:
        c = psycopg.connect(
            url,
            autocommit=kind in _ALONE,
            row_factory=class_row(Opened),  # fits no row of ours
        )
        stack.enter_context(c)
        if kind == "pipeline":
            stack.enter_context(c.pipeline())
        given = c.cursor() if kind == "cursor" else c
        yield Opened(given, c.commit, c.rollback, c.execute)
        c.rollback()


@contextmanager
def _guarded(url: str, kind: str) -> Iterator[Opened]:
    with psycopg.connect(url) as c:
        tx = GuardedCursor(c)
        yield Opened(tx if kind == "cursor" else tx.connection, c.commit, c.rollback, tx.execute)
        c.rollback()


@contextmanager
def _dbapi(url: str, kind: str) -> Iterator[Opened]:
    c = DbapiConnection(url, autocommit=kind in _ALONE)
    given = c.cursor() if kind == "cursor" else c
    yield Opened(given, c.commit, c.rollback, c.cursor().execute)
    c.rollback()
    c.close()


@contextmanager
def _sqlalchemy(url: str, kind: str, driver: str = "psycopg") -> Iterator[Opened]:
    engine = sqlalchemy.create_engine(_of_driver(url, driver))
    makers: dict[str, Callable[[], Any]] = {
        "connection": engine.connect,
        "autocommit": engine.execution_options(isolation_level="AUTOCOMMIT").connect,
        "session": lambda: orm.Session(engine),
        "scoped": orm.scoped_session(orm.sessionmaker(engine)),
    }
    with makers[kind]() as c:
        yield Opened(c, c.commit, c.rollback, lambda sql: c.execute(sqlalchemy.text(sql)))
    engine.dispose()


@contextmanager
def _sqlalchemy_raw(url: str, _: str) -> Iterator[Opened]:
    engine = sqlalchemy.create_engine(_of_driver(url, "psycopg"))
    with closing[Any](engine.raw_connection()) as c:
        yield Opened(c, c.commit, c.rollback, c.cursor().execute)
    engine.dispose()


@contextmanager
def _psycopg2(url: str, kind: str) -> Iterator[Opened]:
    with closing(psycopg2.connect(url, cursor_factory=psycopg2.extras.RealDictCursor)) as c:
        c.autocommit = kind in _ALONE
        given = c.cursor() if kind == "cursor" else c
        yield Opened(given, c.commit, c.rollback, lambda sql: c.cursor().execute(sql))
        c.rollback()


@contextmanager
def _pg8000(url: str, kind: str) -> Iterator[Opened]:
    told = conninfo_to_dict(url)
    names = {"database": "dbname", "user": "user", "password": "password", "host": "host"}
    place: dict[str, Any] = {name: told.get(key) for name, key in names.items()}
    # The local stack's passwords take one round, so that connecting is quick.
    with patch.object(scramp.core.IterationCount, "MIN_ITERATION_COUNT", 1):
        connection = pg8000.dbapi.connect(**place, port=int(told["port"] or 5432))
    with closing(connection) as c:
        c.autocommit = kind in _ALONE
        yield Opened(c, c.commit, c.rollback, c.cursor().execute)
        c.rollback()


@contextmanager
def _bare(url: str, _: str) -> Iterator[Opened]:
    with psycopg.connect(url) as c:
        yield Opened(Bare(c.cursor()), c.commit, c.rollback, c.execute)
        c.rollback()


@contextmanager
def _django(url: str, kind: str) -> Iterator[Opened]:
    if not settings.configured:
        settings.configure(USE_TZ=True, LOGGING_CONFIG=None)
        django.setup()
    told = conninfo_to_dict(url)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host"}
    place = {name: told.get(key, "") for name, key in names.items()} | {"PORT": told.get("port")}
    place["ENGINE"] = "django.db.backends.postgresql"
    connections = django.db.connections
    connections.settings.update(connections.configure_settings({"default": place}))
    c = django.db.connection  # a proxy for the one of this thread, as programs import it
    given = c.cursor() if kind == "cursor" else c
    if kind in _ALONE:
        yield Opened(given, c.commit, c.rollback, lambda sql: c.cursor().execute(sql))
    else:
        block = Atomic()
        yield Opened(given, block.commit, block.rollback, lambda sql: c.cursor().execute(sql))
        block.end()
    c.close()
    del connections["default"]


@asynccontextmanager
async def _psycopg_async(url: str, kind: str) -> AsyncIterator[Opened]:
    async with await psycopg.AsyncConnection.connect(
        url, autocommit=kind in _ALONE, row_factory=dict_row
    ) as c:
        given = c.cursor() if kind == "cursor" else c
        yield Opened(given, c.commit, c.rollback, c.execute)
        await c.rollback()


class _WrappedSession(sqlalchemy_asyncio.AsyncSession):  # type: ignore[misc] # without types
    """As SQLModel's, whose execute() is wrapped, and no coroutine function on Python 3.11."""

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        return super().execute(*args, **kwargs)


@asynccontextmanager
async def _sqlalchemy_async(url: str, kind: str, driver: str = "psycopg") -> AsyncIterator[Opened]:
    engine = sqlalchemy_asyncio.create_async_engine(_of_driver(url, driver))
    makers: dict[str, Callable[[], Any]] = {
        "connection": engine.connect,
        "autocommit": engine.execution_options(isolation_level="AUTOCOMMIT").connect,
        "session": lambda: sqlalchemy_asyncio.AsyncSession(engine),
        "wrapped": lambda: _WrappedSession(engine),
    }
    async with makers[kind]() as c:
        yield Opened(c, c.commit, c.rollback, lambda sql: c.execute(sqlalchemy.text(sql)))
    await engine.dispose()


@asynccontextmanager
async def _sqlalchemy_async_raw(url: str, _: str) -> AsyncIterator[Opened]:
    engine = sqlalchemy_asyncio.create_async_engine(_of_driver(url, "psycopg"))
    async with engine.connect() as connection:
        raw = await connection.get_raw_connection()
        c: Any = raw.driver_connection
        yield Opened(raw, c.commit, c.rollback, c.execute)
        await c.rollback()
    await engine.dispose()


@asynccontextmanager
async def _bare_async(url: str, _: str) -> AsyncIterator[Opened]:
    c = await asyncpg.connect(url)
    await c.execute("BEGIN")
    yield Opened(
        BareAsync(c), lambda: c.execute("COMMIT; BEGIN"), lambda: c.execute("ROLLBACK; BEGIN"),
        c.execute,
    )  # fmt: skip
    await c.close()


def _of_driver(url: str, driver: str) -> str:
    return url.replace("postgresql:", f"postgresql+{driver}:")


_SYNC: dict[str, Any] = {
    "psycopg": _psycopg, "psycopg2": _psycopg2, "pg8000": _pg8000, "dbapi": _dbapi,
    "sqlalchemy": _sqlalchemy, "sqlalchemy+psycopg2": partial(_sqlalchemy, driver="psycopg2"),
    "pool": _sqlalchemy_raw, "django": _django, "guarded": _guarded, "bare": _bare,
}  # fmt: skip
_ASYNC: dict[str, Any] = {
    "psycopg": _psycopg_async, "sqlalchemy": _sqlalchemy_async, "pool": _sqlalchemy_async_raw,
    "sqlalchemy+asyncpg": partial(_sqlalchemy_async, driver="asyncpg"), "bare": _bare_async,
}  # fmt: skip

KINDS = [
    *("psycopg connection", "psycopg cursor", "psycopg2 connection", "psycopg2 cursor"),
    *("pg8000 connection", "dbapi connection", "dbapi cursor"),
    *("sqlalchemy connection", "sqlalchemy session", "sqlalchemy scoped", "pool connection"),
    *("sqlalchemy+psycopg2 connection", "sqlalchemy+psycopg2 session"),
    *("django connection", "django cursor", "guarded connection", "guarded cursor"),
    "bare connection",
    *("async psycopg connection", "async psycopg cursor"),
    *("async sqlalchemy connection", "async sqlalchemy session", "async sqlalchemy wrapped"),
    *("async sqlalchemy+asyncpg connection", "async sqlalchemy+asyncpg session"),
    *("async pool connection", "async bare connection"),
]
"""In a transaction; those of Django are inside `transaction.atomic()`."""

_ALONE = ("autocommit", "pipeline")
"""Each statement is a transaction of its own."""
AUTOCOMMIT_KINDS = [
    *("psycopg autocommit", "psycopg pipeline", "psycopg2 autocommit", "pg8000 autocommit"),
    *("dbapi autocommit", "sqlalchemy autocommit", "django autocommit"),
    *("async psycopg autocommit", "async sqlalchemy autocommit"),
    "async sqlalchemy+asyncpg autocommit",
]


def with_connection(
    url: str, kind: str, script: Callable[[Opened], Coroutine[Any, Any, None]]
) -> None:
    """Runs a script over a connection of this kind, in an event loop only where it needs one."""
    *asynchronous, package, part = kind.split()
    if asynchronous:
        asyncio.run(_in_loop(_ASYNC[package](url, part), script))
        return
    with _SYNC[package](url, part) as opened:
        run_plainly(script(opened))


def run_plainly(script: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns that never has to wait. Django refuses to work in an event loop."""
    try:
        script.send(None)
    except StopIteration as end:
        answer: T = end.value
        return answer
    raise AssertionError("it waits")


async def _in_loop(
    opening: AbstractAsyncContextManager[Opened],
    script: Callable[[Opened], Coroutine[Any, Any, None]],
) -> None:
    async with opening as opened:
        await script(opened)
