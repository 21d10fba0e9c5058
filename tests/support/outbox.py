"""An outbox to look at, and a connection to it of every kind that takes requests.

All kinds are those of the packages themselves; `dbapi` is a driver that only keeps to DB-API 2.0,
and gives rows as mappings; `pool` is what the pool of SQLAlchemy hands out, around a driver's own;
`guarded` is what a handler has of its `tx`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    ExitStack,
    asynccontextmanager,
    closing,
    contextmanager,
)
from typing import Any, NamedTuple, TypeVar

import django
import psycopg
import sqlalchemy
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import class_row, dict_row
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as sqlalchemy_asyncio

from feedback.postgres_times import TimesCursor
from processing.worker.guarded_cursor import GuardedCursor

T = TypeVar("T")


class Opened(NamedTuple):
    """A connection, session or cursor in a transaction, and how that ends."""

    given: Any
    commit: Callable[[], Any]
    rollback: Callable[[], Any]
    write: Callable[[str], Any]
    """Executes a statement of the caller's own."""


class Outbox:
    """The rows of one, over a connection of its own."""

    def __init__(self, url: str, schema: str) -> None:
        self.url = url
        self.schema = schema
        self.connection = psycopg.connect(
            url, autocommit=True, row_factory=dict_row, cursor_factory=TimesCursor
        )

    def rows(self, query: str = "SELECT * FROM :schema.requests ORDER BY seq") -> list[Any]:
        """Rows as dicts; `:schema` is the outbox's."""
        return self.connection.execute(self.sql(query).encode()).fetchall()

    def run(self, statement: str) -> None:
        """Executes a statement."""
        self.connection.execute(self.sql(statement).encode())

    def sql(self, text: str) -> str:
        """The statement with the schema's name in it."""
        return text.replace(":schema", self.schema)


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


@contextmanager
def _psycopg(url: str, kind: str) -> Iterator[Opened]:
    with ExitStack() as stack:
        c = psycopg.connect(
            url,
            autocommit=kind in _ALONE,
            row_factory=class_row(Outbox),  # fits no row of ours
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
def _sqlalchemy(url: str, kind: str) -> Iterator[Opened]:
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
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
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with closing[Any](engine.raw_connection()) as c:
        yield Opened(c, c.commit, c.rollback, c.cursor().execute)
    engine.dispose()


@contextmanager
def _django(url: str, kind: str) -> Iterator[Opened]:
    from django.conf import settings
    from django.db.utils import ConnectionHandler

    if not settings.configured:
        settings.configure(USE_TZ=True, LOGGING_CONFIG=None)
        django.setup()
    told = conninfo_to_dict(url)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host"}
    place = {name: told.get(key, "") for name, key in names.items()} | {"PORT": told.get("port")}
    place["ENGINE"] = "django.db.backends.postgresql"
    c = ConnectionHandler({"default": place})["default"]
    c.set_autocommit(kind in _ALONE)
    given = c.cursor() if kind == "cursor" else c
    yield Opened(given, c.commit, c.rollback, lambda sql: c.cursor().execute(sql))
    if kind not in _ALONE:
        c.rollback()
    c.close()


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
async def _sqlalchemy_async(url: str, kind: str) -> AsyncIterator[Opened]:
    engine = sqlalchemy_asyncio.create_async_engine(
        url.replace("postgresql:", "postgresql+psycopg:")
    )
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
    engine = sqlalchemy_asyncio.create_async_engine(
        url.replace("postgresql:", "postgresql+psycopg:")
    )
    async with engine.connect() as connection:
        raw = await connection.get_raw_connection()
        c: Any = raw.driver_connection
        yield Opened(raw, c.commit, c.rollback, c.execute)
        await c.rollback()
    await engine.dispose()


_SYNC = {
    "psycopg": _psycopg, "dbapi": _dbapi, "sqlalchemy": _sqlalchemy, "pool": _sqlalchemy_raw,
    "django": _django, "guarded": _guarded,
}  # fmt: skip
_ASYNC = {
    "psycopg": _psycopg_async, "sqlalchemy": _sqlalchemy_async, "pool": _sqlalchemy_async_raw,
}  # fmt: skip

KINDS = [
    *("psycopg connection", "psycopg cursor", "dbapi connection", "dbapi cursor"),
    *("sqlalchemy connection", "sqlalchemy session", "sqlalchemy scoped", "pool connection"),
    *("django connection", "django cursor", "guarded connection", "guarded cursor"),
    *("async psycopg connection", "async psycopg cursor"),
    *("async sqlalchemy connection", "async sqlalchemy session", "async sqlalchemy wrapped"),
    "async pool connection",
]

_ALONE = ("autocommit", "pipeline")
"""Each statement is a transaction of its own."""
AUTOCOMMIT_KINDS = [
    *("psycopg autocommit", "psycopg pipeline", "dbapi autocommit", "sqlalchemy autocommit"),
    *("django autocommit", "async psycopg autocommit", "async sqlalchemy autocommit"),
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
