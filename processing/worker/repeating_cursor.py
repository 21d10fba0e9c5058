"""A psycopg cursor for statements that come again with each request, and cost less then.

psycopg takes each statement as a new one: reads its text, finds out whether it is prepared, and
passes its answer through four generators, which is more than half of a worker's CPU for a one-row
INSERT. Of a statement that the server has prepared it is kept how psycopg read its text. It is sent
by its name then, with what dumped its parameters before. All else goes psycopg's way.
"""

# ruff: noqa: SLF001 - it does what psycopg's cursor does, with what that one knows

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, cast

import psycopg
from psycopg import pq
from psycopg._enums import PyFormat
from psycopg._preparing import Prepare
from psycopg._queries import PostgresQuery
from psycopg.abc import PQGen
from psycopg.adapt import AdaptersMap, Transformer
from psycopg.generators import execute
from psycopg.pq.abc import PGresult

from processing.worker.gathering_pipeline import GatheringPipeline

MOST_REPEATED: Final = 100
"""Statements that one cursor keeps: psycopg has the server prepare as many."""
LONGEST_REPEATED: Final = 4096
"""Characters. What is longer has its values in it, and is hardly ever met again."""
_ROWS: Final = (tuple, list)
_COMMAND_OK: Final = int(pq.ExecStatus.COMMAND_OK)


class _Context(NamedTuple):
    """What psycopg wants to know of a cursor to dump and load for it."""

    adapters: AdaptersMap
    connection: psycopg.Connection[Any]


class _Statement(NamedTuple):
    """One that was run before, as psycopg has read it."""

    query: bytes
    wanted: Sequence[PyFormat]
    names: Sequence[str] | None
    """Of its parameters, where they come in a dict."""
    size: int
    """How many parameters it has."""
    dumper: Any
    """A psycopg Transformer for its parameters alone: it keeps what it has made for their types."""
    settings: tuple[str, bytes | None]
    """Of the session, as far as they make a difference to that."""

    def in_order(self, params: Any) -> Sequence[Any] | None:
        """Its parameters; None where psycopg has to look at them."""
        if self.names is None:
            return params if type(params) in _ROWS and len(params) == self.size else None
        if type(params) is not dict:
            return None
        try:
            return [params[name] for name in self.names]
        except KeyError:
            return None


class KeptStatement(NamedTuple):
    """A statement that the server keeps."""

    connection: psycopg.Connection[Any]
    name: bytes
    query: bytes
    types: Sequence[int]
    """Of its parameters, as psycopg gave them: 0 for one that the server was to find."""


class RepeatingCursor(psycopg.Cursor[Any]):
    """Behaves as psycopg's.

    But where the whole process is told anew how JSON is dumped (psycopg's `set_json_dumps`), what
    was run before does not hear of it.
    """

    def __init__(self, connection: psycopg.Connection[Any], **options: Any) -> None:
        super().__init__(connection, **options)
        self._repeated: dict[str, _Statement] = {}
        """By their texts, which are ASCII: they are the same in any encoding."""
        self._executes: str | None = None
        """The text that psycopg executes now and that may be run again; guarded by the connection's
        lock."""
        self._sent: tuple[bytes, Sequence[int]] | None = None
        """psycopg's key for what it has executed last, or else has failed, where that was kept."""

    @property
    def kept(self) -> KeptStatement | None:
        """The statement that has failed, where the server keeps it."""
        if (sent := self._sent) is None:
            return None
        connection: Any = self._conn
        name = connection._prepared._names.get(sent)
        return None if name is None else KeptStatement(connection, name, *sent)

    def run_again(self, query: Any, params: Any) -> bool:
        """As execute(), of a statement that can be run again; False where that is to run it."""
        if type(query) is not str or (known := self._repeated.get(query)) is None:
            return False
        values = known.in_order(params)
        if values is None:
            return False
        with self._conn.lock:
            return self._run(query, known, values)

    def _run(self, text: str, known: _Statement, values: Sequence[Any]) -> bool:
        connection: Any = self._conn
        pipeline = connection._pipeline
        if pipeline is not None and type(pipeline) is not GatheringPipeline:
            return False
        if self._closed or not connection.autocommit or self._own_dumpers:
            return False
        if (settings := self._settings) != known.settings:
            known = known._replace(dumper=self._transformer(), settings=settings)
            self._repeated[text] = known
        self._reset()
        self._last_query = None  # psycopg is to begin anew with what it gets next
        dumper = self._tx = known.dumper
        dumped = dumper.dump_sequence(values, known.wanted)
        names, key = connection._prepared._names, (known.query, dumper.types)
        if (name := names.get(key)) is None:
            # With parameters of these types it is another one, and they can be dumped but once.
            connection.wait(self._execute_dumped(known, dumped))
            return True
        names.move_to_end(key)
        send = self._pgconn.send_query_prepared
        if pipeline is not None:
            pipeline.put(self, send, name, dumped, dumper.formats, self.format)
        else:
            send(name, dumped, dumper.formats, self.format)
            try:
                self._take(connection.wait(execute(self._pgconn)))
            except psycopg.Error:
                self._sent = key
                raise
        return True

    @property
    def _settings(self) -> tuple[str, bytes | None]:
        """Of the session, as far as parameters are dumped by them."""
        pgconn = self._pgconn
        return pgconn._encoding, pgconn.parameter_status(b"IntervalStyle")

    @property
    def _own_dumpers(self) -> bool:
        """Whether somebody registered any with this cursor, which may be others by now."""
        adapters: Any = self._adapters  # psycopg says nowhere else what was registered with it
        return True in adapters._own_dumpers.values()

    @property
    def _own_loaders(self) -> bool:
        """As `_own_dumpers`."""
        adapters: Any = self._adapters
        return True in adapters._own_loaders

    def _transformer(self) -> Any:
        return Transformer(_Context(self._adapters, self._conn))

    def _execute_dumped(self, known: _Statement, dumped: Sequence[Any]) -> PQGen[None]:
        """The rest of psycopg's way, for parameters that are dumped."""
        dumper, connection = known.dumper, cast("Any", self._conn)
        self._tx = self._transformer()
        query = PostgresQuery(self._tx)
        query.query, query.params = known.query, dumped
        query.types, query.formats = dumper.types or (), dumper.formats
        yield from self._maybe_prepare_gen(query)
        if connection._pipeline:
            yield from connection._pipeline._communicate_gen()
        yield from connection._prepared.maintain_gen(connection)

    def _take(self, results: list[PGresult]) -> None:
        result = results[0] if len(results) == 1 else None
        if result is not None and result.status == _COMMAND_OK:
            self._results, self.pgresult = results, result
            changed = result.command_tuples
            self._rowcount = -1 if changed is None else changed
            self._statusmessage = result.command_status
        else:
            self._check_results(results)
            self._tx = self._transformer()  # what loads rows goes by the settings of now
            self._set_results(results)

    def _execute_gen(self, query: Any, *args: Any, **options: Any) -> PQGen[None]:
        """As psycopg's."""
        plain = type(query) is str and len(query) <= LONGEST_REPEATED and query.isascii()
        self._executes = query if plain else None
        try:
            yield from super()._execute_gen(query, *args, **options)
        finally:
            self._executes = None

    def _get_prepared(
        self, pgq: PostgresQuery, prepare: bool | None = None
    ) -> tuple[Prepare, bytes]:
        """As psycopg's, which asks it about each statement that it sends."""
        found = super()._get_prepared(pgq, prepare)
        self._sent = (pgq.query, pgq.types) if found[0] is Prepare.YES else None
        if found[0] is Prepare.YES and self._executes is not None and pgq.params:
            self._remember(self._executes, pgq)
        return found

    def _remember(self, text: str, read: Any) -> None:
        if len(self._repeated) == MOST_REPEATED and text not in self._repeated:
            self._repeated.clear()
        self._repeated[text] = _Statement(
            read.query,
            read._want_formats,
            read._order,
            len(read.params),
            self._transformer(),
            self._settings,
        )
