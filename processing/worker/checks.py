"""Checks of requests with effects outside: what became of their calls, where nobody knows it."""

from __future__ import annotations

from typing import Final

from feedback.contract.states import EXPIRED, State
from feedback.journal.rows import StoredRequest
from processing.handlers.handler import Handler
from processing.handlers.outcomes import Done, NotDone, Outcome, Unknown, describe
from processing.handlers.tracebacks import let_go
from processing.logs import BoundLogger
from processing.worker.call_ends import CallEnds
from processing.worker.calls import DONE
from processing.worker.chunk_run import ChunkRun
from processing.worker.dedup import has_expired
from processing.worker.forks import FORK_GUARD
from processing.worker.task import CheckAnswer, Task

TOO_LATE: Final = Outcome(
    State.REJECTED, EXPIRED, reason="its call did not happen, and it has expired since"
)


class Checks:
    """Asks them, and ends what they find out about."""

    def __init__(self, ends: CallEnds, log: BoundLogger) -> None:
        self._ends, self._log = ends, log

    def end_lost(
        self, task: Task, stored: StoredRequest, doubt: Outcome, not_done: Outcome | None,
        chunk: ChunkRun,
    ) -> None:  # fmt: skip
        """The end of a claim whose worker died: `doubt`, or what its check finds out.

        The check is asked where there is a `not_done`, which is the end where nothing happened.
        Raises psycopg.Error.
        """
        _go_on_with(task, stored)
        task.end(doubt)
        if not_done is not None:
            self._find_out(task, stored, not_done, chunk)
        self._ends.write_once(task, stored.token or "", chunk)
        chunk.settle([task])

    def end_doubt(
        self, task: Task, stored: StoredRequest, not_done: Outcome, chunk: ChunkRun
    ) -> None:
        """What the check of a request in doubt finds out, though nobody has sent it again.

        Where it can't tell, the row stays as it is. Raises psycopg.Error.
        """
        _go_on_with(task, stored)
        task.doubted_attempt = stored.attempt
        if self._find_out(task, stored, not_done, chunk):
            self._ends.write_once(task, stored.token or "", chunk)
            chunk.settle([task])
            return
        self.leave_in_doubt(stored)

    def leave_in_doubt(self, stored: StoredRequest) -> None:
        """Nobody could tell, and it is asked again later. Raises psycopg.Error."""
        self._ends.stays_in_doubt(stored)

    def not_asked(self, task: Task) -> None:
        """It has no payload that its check could be asked with."""
        self._log.warning(
            "a request in doubt can't be asked about: its payload can't be read any more",
            request_id=task.envelope.id, type=task.envelope.type,
        )  # fmt: skip

    def _find_out(
        self, task: Task, stored: StoredRequest, not_done: Outcome, chunk: ChunkRun
    ) -> bool:
        """Ends it as its check says, `not_done` where nothing happened; False: it can't tell."""
        if task.handler is None:
            return False
        answer = self._ask_once(task, task.handler, stored, chunk)
        if isinstance(answer.said, Done):
            task.end(DONE, answer.result)
        elif isinstance(answer.said, NotDone):
            task.end(not_done)
        else:
            return False
        return True

    def settle(
        self, task: Task, handler: Handler, stored: StoredRequest, chunk: ChunkRun
    ) -> list[Task] | None:
        """Asks the check of a request in doubt; None where nothing happened, so that it is to run.

        Where that settled it, nothing is left; where nobody can tell, it is to be answered as any
        copy of what has ended. No start is counted: what is found out is the end of the last one.
        """
        task.doubted_attempt = stored.attempt
        answer = self._ask_once(task, handler, stored, chunk)
        task.lost, task.losses = 0, []  # what died asked, and was no start
        if isinstance(answer.said, Done):
            task.end(DONE, answer.result)
        elif isinstance(answer.said, NotDone) and (has_expired(task) or task.end_expired()):
            task.end(TOO_LATE)
        else:
            task.doubted_attempt = None
            if isinstance(answer.said, NotDone):
                return None
            task.asked_run = stored.run
            return [task]
        task.claimed_run = stored.run
        self._ends.write(task, stored.token or "", chunk)
        chunk.settle([task])
        return []

    def _ask_once(
        self, task: Task, handler: Handler, stored: StoredRequest, chunk: ChunkRun
    ) -> CheckAnswer:
        """What the check says of a call; the same once more where its end is written once more.

        That is so where the connection was lost while it was asked, or after that.
        """
        about = stored.run, stored.token
        if task.answer is None or task.answer.about != about:
            task.answer = CheckAnswer(about, *self._ask(task, handler, chunk))
        chunk.clear()  # what comes of it takes what the database takes
        return task.answer

    def _ask(
        self, task: Task, handler: Handler, chunk: ChunkRun
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
            self._log.error("check failed", request_id=name, error=describe(error))
            let_go(error)
            return None, None


def _go_on_with(task: Task, stored: StoredRequest) -> None:
    """A task becomes the run that its row tells of."""
    task.stored = stored
    task.claimed_run = stored.run
    task.lost = 0  # what was lost before its claim was written with that
    task.fingerprint = stored.fingerprint
    task.hold_open = False  # whoever claimed it had read it
