"""Asks the check of a request with effects outside what became of its call."""

from __future__ import annotations

from processing.handlers.handler import Handler
from processing.handlers.outcomes import Done, NotDone, Unknown, describe
from processing.logs import BoundLogger
from processing.worker.chunk_run import ChunkRun
from processing.worker.forks import FORK_GUARD
from processing.worker.task import Task


def ask_check(
    task: Task, handler: Handler, chunk: ChunkRun, log: BoundLogger
) -> tuple[Done | NotDone | Unknown | None, bytes | None]:
    """What the check of a request says, None where it fails; beside Done the result as JSON."""
    try:
        request = task.request(task.hand_out())
        chunk.ask(request, task.timeout)
        answer = handler.call_check(request)
        FORK_GUARD.check()
        return answer
    except BaseException as error:  # noqa: BLE001 - a check that fails has not found out
        FORK_GUARD.check(error)
        name = task.envelope.id
        log.error("check failed", request_id=name, error=describe(error))  # noqa: TRY400 - one line
        return None, None
    finally:
        chunk.clear()  # what comes of it takes what the database takes
