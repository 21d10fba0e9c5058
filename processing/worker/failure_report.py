"""Tells of handlers that failed: a line in the log, and the app's own on_error hooks."""

from __future__ import annotations

import traceback

from feedback.contract.states import State
from processing.handlers.app import App
from processing.handlers.outcomes import describe
from processing.logs import RUNNING, BoundLogger, RateLimited
from processing.worker.chunk_run import ChunkRun
from processing.worker.records import final_of
from processing.worker.task import Task


class FailureReport:
    """Told once for each run, when its end is written: what is done again has not failed yet."""

    def __init__(self, app: App, log: BoundLogger) -> None:
        self._app = app
        self._log = RateLimited(log)

    def tell(self, chunk: ChunkRun) -> None:
        """Reports the failed runs of a chunk."""
        for task in chunk.tally.failed:
            outcome, final, e = task.outcome, final_of(task), task.envelope
            if final.state is State.DEAD:
                self._log.warning(
                    "request became a dead letter", request_id=e.id, type=e.type, code=final.code,
                    attempt=task.attempt, error=final.error,
                )  # fmt: skip
            if outcome is None or outcome.raised is None:
                continue
            cause = outcome.raised.error
            with outcome.raised.shown():
                self._log.warning(
                    "handler failed", request_id=e.id, type=e.type, attempt=task.attempt,
                    becomes=str(final.state), error=outcome.error,
                    exception=_traceback(cause),
                )  # fmt: skip
                if self._app.reports_errors:
                    self._report(task, cause, chunk)
        for task in chunk.tally.failed:
            if task.outcome is not None and task.outcome.raised is not None:
                # Else they stay until the collector comes by, and an idle worker has no use for it.
                task.outcome.raised.forget()
        self._log.flush()

    def _report(self, task: Task, cause: BaseException, chunk: ChunkRun) -> None:
        """Calls the hooks."""
        e = task.envelope
        RUNNING.set((e.id, e.type))
        chunk.start(task.index, task.timeout)  # a hook that hangs is ended like a handler
        try:
            request = task.request(task.hand_out())
            request.follow_ups = None  # what is to be written is
            self._app.report_error(cause, request, task.timeout)
        except BaseException as error:  # noqa: BLE001 - user code must not end the worker
            self._log.error("on_error failed", type=e.type, error=describe(error))
        chunk.clear()
        RUNNING.set(None)


def _traceback(error: BaseException) -> str:
    """As Python prints it, even where the exception cannot say what it is."""
    try:
        return "".join(traceback.format_exception(error)).rstrip()
    except BaseException:  # noqa: BLE001 - a __str__ of the user's
        return "".join([*traceback.format_tb(error.__traceback__), describe(error)])
