"""Calls handlers: with what they ask for, timed, and whatever they raise as an outcome."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from feedback.contract.states import CANCELLED, OK, State
from feedback.journal.database_errors import is_lock_race
from feedback.status.status import StatusWrite
from processing.handlers.errors import Interrupted, InvalidPayload
from processing.handlers.handler import Handler
from processing.handlers.options import Effect
from processing.handlers.outcomes import Outcome, outcome_of
from processing.handlers.request import Request
from processing.handlers.stopping import STOPPING
from processing.handlers.tracebacks import let_go, with_its_causes
from processing.logs import RUNNING
from processing.worker.forks import FORK_GUARD
from processing.worker.guarded_cursor import GuardedCursor
from processing.worker.interruption import cancelled, interrupted
from processing.worker.records import running_status
from processing.worker.session import Session
from processing.worker.task import Task

DONE = Outcome(State.DONE, OK)
LONG_RUN = 1.0
"""Seconds; a type that takes longer says that it runs."""


class Calls:
    """Enters user code; nothing that it raises comes out."""

    def __init__(self, session: Session, publish: Callable[[list[StatusWrite]], None]) -> None:
        self._session = session
        self._publish = publish
        self._long: set[str] = set()
        """Types whose last run was a long one."""

    def one(self, task: Task, handler: Handler) -> None:
        """Runs one request."""
        name = handler.type
        if STOPPING.cancelled is not None:
            if task.started is None:  # else the run is the one that was taken back
                task.started = time.time()
            task.end(cancelled(STOPPING.cancelled))
            self._session.failures.clear()  # of the run that was taken back
            return
        task.started = time.time()
        long = name in self._long
        if long or handler.effect == "external":
            self._publish([running_status(task, datetime.now(UTC))])
        tx = self._session.handler_cursor(name) if handler.wants_tx else None
        RUNNING.set((task.envelope.id, name))
        begun = time.perf_counter()
        try:
            payload = task.hand_out()
            request = task.request(payload) if handler.wants_request else None
            result = handler.call(payload, request, tx)
            FORK_GUARD.check()
            task.end(DONE, result)
        except BaseException as error:  # noqa: BLE001 - sys.exit of a handler is its failure, not ours
            FORK_GUARD.check(error)
            task.end(_ended_by(error, handler.effect))
            self._forgive_unless(error)
            let_go(error)
            self._session.forget_cursor(name)
        self._take_back(tx)
        task.seconds = seconds = time.perf_counter() - begun
        RUNNING.set(None)
        if long != (seconds > LONG_RUN):
            self._long ^= {name}

    def batch(self, tasks: Sequence[Task], handler: Handler) -> None:
        """Runs a batch handler; its requests share its time evenly."""
        name = handler.type
        long = name in self._long
        now, begun = time.time(), time.perf_counter()
        for task in tasks:
            task.started = now
        if long:
            self._publish([running_status(t, datetime.now(UTC)) for t in tasks])
        tx = self._session.handler_cursor(name) if handler.wants_tx else None
        RUNNING.set((None, name))
        entered: list[Task] = []
        try:
            requests = _requests(tasks, entered)
            results = handler.call_batch(requests, tx) if requests else []
            FORK_GUARD.check()
        except BaseException as error:  # noqa: BLE001 - raising fails all of the batch
            FORK_GUARD.check(error)
            self._session.forget_cursor(name)
            outcome = _ended_by(error, handler.effect)
            self._forgive_unless(error)
            let_go(error)
            for task in tasks:
                task.end(outcome)
        else:
            _end_each(entered, results, handler.effect)
            self._forgive_unless(*(r for r in results if isinstance(r, BaseException)))
        self._take_back(tx)
        took = time.perf_counter() - begun
        RUNNING.set(None)
        if long != (took > LONG_RUN):
            self._long ^= {name}
        for task in tasks:
            task.seconds = took / len(tasks)
            task.started = now + took - task.seconds  # it ended for all of them at once

    def _forgive_unless(self, *raised: BaseException) -> None:
        """A lock that could not be had is no more, unless that led to what was raised.

        In a transaction that is healthy, the handler has dealt with it.
        """
        failures = self._session.failures
        if failures.last is None or not is_lock_race(failures.last):
            return
        if self._session.in_transaction:
            failures.forgive_unless([one for error in raised for one in with_its_causes(error)])

    def _take_back(self, tx: GuardedCursor | None) -> None:
        session = self._session
        if tx is not None and (session.held() or session.failures.blocks):
            session.take_back()


def _end_each(
    tasks: Sequence[Task], results: Sequence[bytes | BaseException | None], effect: Effect
) -> None:
    """Ends those of a batch that returned; one exception may be the end of several."""
    raised: dict[int, Outcome] = {}
    for task, result in zip(tasks, results, strict=True):
        if not isinstance(result, BaseException):
            task.end(DONE, result)
            continue
        if id(result) not in raised:
            raised[id(result)] = outcome_of(result, effect)
            let_go(result)
        task.end(raised[id(result)])


def _requests(tasks: Sequence[Task], entered: list[Task]) -> list[Request[Any]]:
    """Requests of a batch; what is valid no more where it is parsed anew ends by itself.

    The others are added to `entered`.
    """
    requests: list[Request[Any]] = []
    for task in tasks:
        try:
            requests.append(task.request(task.hand_out()))
        except InvalidPayload as error:
            task.end(outcome_of(error))
        else:
            entered.append(task)
    return requests


def _ended_by(error: BaseException, effect: Effect) -> Outcome:
    """The end of a run that raised. One that was cancelled and gives up is not to run again."""
    reason = STOPPING.cancelled
    if isinstance(error, Interrupted):
        return interrupted(error.code if reason is None else CANCELLED, effect, reason)
    outcome = outcome_of(error, effect)
    if reason is None or outcome.state is State.REJECTED:
        return outcome
    if outcome.state is State.IN_DOUBT:
        return Outcome(State.IN_DOUBT, CANCELLED, reason=reason, error=outcome.error)
    return cancelled(reason, outcome.error)
