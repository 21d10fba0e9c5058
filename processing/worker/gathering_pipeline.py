"""libpq's pipeline, without a system call for each statement.

psycopg sends each statement at once and looks for answers: two polls and a write, which wake the
server up as often. Where nobody reads an answer before the end they may as well go together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, cast

import psycopg
from psycopg.abc import PQGen
from psycopg.generators import send
from psycopg.pq.abc import PGresult

AT_MOST = 100
"""Statements that are kept back: their texts are in memory until they are sent."""


class _Unread(NamedTuple):
    """What psycopg queues for a statement that was prepared before."""

    cursor: psycopg.Cursor[Any]
    prepared_now: None


class GatheringPipeline(psycopg.Pipeline):
    """A psycopg pipeline whose statements go out at its next synchronisation, or by the hundred."""

    _kept = 0

    @classmethod
    def entered(cls, pipeline: psycopg.Pipeline) -> GatheringPipeline:
        """The pipeline that a connection is in already, made one of these."""
        pipeline.__class__ = cls
        return cast("GatheringPipeline", pipeline)

    def add(self, statements: Iterable[bytes]) -> None:
        """Statements of the worker's own, behind those of handlers; errors come out at the end."""
        for statement in statements:
            self.command_queue.append(partial(self.pgconn.send_query_params, statement, None))
            self.result_queue.append(None)

    def put(self, cursor: psycopg.Cursor[Any], send: Callable[..., None], *statement: Any) -> None:
        """A handler's statement, which `send` gives to libpq; `cursor` is not told its answer.

        Nobody may read that in here, see `GuardedCursor`.
        """
        commands: Any = self.command_queue
        while commands:
            commands.popleft()()
            self._kept += 1
        send(*statement)
        self._kept += 1
        self.result_queue.append(_Unread(cursor, None))
        if self._kept >= AT_MOST:
            self._conn.wait(self._communicate_gen())

    def _communicate_gen(self) -> PQGen[None]:
        commands: Any = self.command_queue
        self._kept += len(commands)
        while commands:
            commands.popleft()()  # into libpq's buffer
        # A handler's statement has its cursor there, a synchronisation has none.
        synchronises = bool(self.result_queue) and self.result_queue[-1] is None
        if synchronises or self._kept >= AT_MOST:
            self._kept = 0
            yield from super()._communicate_gen()
            yield from send(self.pgconn)  # all of it, or the answers would be waited for in vain

    def _process_results(self, queued: Any, results: list[PGresult]) -> None:
        """As psycopg's; of what was `put` it is only looked whether it failed."""
        if type(queued) is not _Unread:
            super()._process_results(queued, results)
        else:
            cursor: Any = queued.cursor
            cursor._check_results(results)  # noqa: SLF001 - as psycopg's
