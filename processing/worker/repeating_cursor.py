"""A psycopg cursor for statements that come again with each request, and cost less then.

psycopg takes each statement as a new one: reads its text, finds out whether it is prepared, and
passes its answer through four generators, which is more than half of a worker's CPU for a one-row
INSERT. A statement that the server has prepared can skip that: its parameters are dumped, as by
psycopg, and sent under its name. All else goes psycopg's way, and so does what has changed since.
"""

# ruff: noqa: SLF001 - it does what psycopg's cursor does, with what that one knows

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import pq
from psycopg._enums import PyFormat
from psycopg._preparing import Prepare
from psycopg._queries import PostgresQuery
from psycopg.adapt import AdaptersMap, Transformer
from psycopg.generators import execute
from psycopg.pq.abc import PGresult

from processing.worker.gathering_pipeline import GatheringPipeline

MOST_REPEATED: Final = 100
"""Statements that one cursor keeps: psycopg has the server prepare as many."""
_ROWS: Final = (tuple, list)
_COMMAND_OK: Final = int(pq.ExecStatus.COMMAND_OK)


class _Context(NamedTuple):
    """What psycopg wants to know of a cursor to dump for it."""

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
    """A psycopg Transformer of its own, so that it knows their types."""
    encoding: str

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


class RepeatingCursor(psycopg.Cursor[Any]):
    """Behaves as psycopg's."""

    def __init__(self, connection: psycopg.Connection[Any], **options: Any) -> None:
        super().__init__(connection, **options)
        self._repeated: dict[str, _Statement] = {}
        """By their texts."""
        self._sent_by_name: PostgresQuery | None = None
        """What psycopg sent last, if it was prepared before."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> RepeatingCursor:
        """As psycopg's; what is prepared can be run again after it."""
        self._sent_by_name = None
        super().execute(query, params, **options)
        self._remember(query)
        return self

    def run_again(self, query: Any, params: Any) -> bool:
        """As execute(), of a statement that can be run again; False where that is to run it."""
        if type(query) is not str or (known := self._repeated.get(query)) is None:
            return False
        values = known.in_order(params)
        if values is None:
            return False
        with self._conn.lock:
            return self._run(known, values)

    def _run(self, known: _Statement, values: Sequence[Any]) -> bool:
        connection: Any = self._conn
        pipeline = connection._pipeline
        if pipeline is not None and type(pipeline) is not GatheringPipeline:
            return False
        if self._closed or not connection.autocommit or self._dumps_otherwise(known):
            return False
        self._reset()
        self._last_query = None  # psycopg is to begin anew with what it gets next
        dumper, prepared = known.dumper, connection._prepared
        dumped = dumper.dump_sequence(values, known.wanted)
        key = known.query, dumper.types
        name = prepared._names.get(key)
        if name is None:
            return False
        prepared._names.move_to_end(key)
        send = self._pgconn.send_query_prepared
        if pipeline is not None:
            pipeline.put(self, send, name, dumped, dumper.formats, self.format)
        else:
            send(name, dumped, dumper.formats, self.format)
            self._take(connection.wait(execute(self._pgconn)))
        return True

    def _dumps_otherwise(self, known: _Statement) -> bool:
        """Parameters may have to be dumped in another way than at its time."""
        mine: Any = self._adapters
        return self._encoding != known.encoding or True in mine._own_dumpers.values()

    def _take(self, results: list[PGresult]) -> None:
        result = results[0] if len(results) == 1 else None
        if result is not None and result.status == _COMMAND_OK:
            self._results, self.pgresult = results, result
            changed = result.command_tuples
            self._rowcount = -1 if changed is None else changed
            self._statusmessage = result.command_status
        else:
            self._check_results(results)
            self._set_results(results)

    def _remember(self, query: Any) -> None:
        sent, self._sent_by_name = self._sent_by_name, None
        if sent is None or not sent.params or type(query) is not str:
            return
        if len(self._repeated) == MOST_REPEATED:
            self._repeated.clear()
        read: Any = sent
        self._repeated[query] = _Statement(
            query=sent.query,
            wanted=read._want_formats,
            names=read._order,
            size=len(sent.params),
            dumper=Transformer(_Context(self._adapters, self._conn)),
            encoding=self._encoding,
        )

    def _get_prepared(
        self, pgq: PostgresQuery, prepare: bool | None = None
    ) -> tuple[Prepare, bytes]:
        """As psycopg's, which asks it about each statement that it sends."""
        found = super()._get_prepared(pgq, prepare)
        if found[0] is Prepare.YES:
            self._sent_by_name = pgq
        return found
