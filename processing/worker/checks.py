"""Asks the check of a type what became of a call that is in doubt."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

from feedback.contract.states import CANCELLED, SHUTDOWN, State
from feedback.contract.times import moment
from processing.handlers.handler import Handler
from processing.handlers.outcomes import Done, NotDone, Outcome, Unknown, describe
from processing.logs import BoundLogger
from processing.worker.calls import DONE
from processing.worker.chunk_run import ChunkRun
from processing.worker.forks import FORK_GUARD
from processing.worker.interruption import cancelled
from processing.worker.task import Task

_SHARE: Final = 0.25
"""Of a lease: how long the ends of other open calls may wait for checks."""


class Checks:
    """Those of one worker. Nothing that they raise comes out."""

    def __init__(self, lease: float, log: BoundLogger) -> None:
        self._lease, self._log = lease, log

    def ask(
        self, task: Task, handler: Handler, chunk: ChunkRun, timeout: float | None = None
    ) -> tuple[Done | NotDone | Unknown | None, bytes | None]:
        """What the check of a request says, None where it fails; beside Done the result as JSON.

        `timeout`: seconds from now that it may take; None: the request's, from its start on.
        """
        request = task.request()
        if timeout is not None:
            request.deadline = moment(time.time() + timeout)
        chunk.ask(request, timeout or task.timeout)
        try:
            answer = handler.call_check(request)
            FORK_GUARD.check()
            return answer
        except BaseException as error:  # noqa: BLE001 - a check that fails has not found out
            FORK_GUARD.check(error)
            self._log.error("check failed", request_id=task.envelope.id, error=describe(error))
            return None, None
        finally:
            chunk.clear()  # what comes of it takes what the database takes

    def settle_raised(self, task: Task, chunk: ChunkRun) -> None:
        """Ends a call that raised as its check says; it stays in doubt where nobody can tell.

        Not where it was told to end as the service stops, and of open calls not where many have
        ended: what they came to waits to be written meanwhile.
        """
        handler, doubt, share = task.handler, task.outcome, self._lease * _SHARE
        if handler is None or handler.check is None or chunk.waited > share:
            return
        if doubt is None or doubt.state is not State.IN_DOUBT or doubt.code == SHUTDOWN:
            return
        timeout = min(task.timeout, share) if chunk.seated else task.timeout
        chunk.start(task.index, timeout)  # it has a time of its own
        answer, result = self.ask(task, handler, chunk, timeout)
        if isinstance(answer, Done):
            task.end(DONE, result)
        elif isinstance(answer, NotDone):
            task.end(_not_done(doubt))


def _not_done(doubt: Outcome) -> Outcome:
    """How a call ends that raised and had no effect: as one that has none outside."""
    if doubt.code == CANCELLED:
        return cancelled(doubt.reason or "", doubt.error)
    return replace(doubt, state=State.FAILED)
