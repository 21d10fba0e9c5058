"""Spans of what a worker runs and writes: none of it is asked where tracing is off."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeAlias

from feedback.contract.states import State
from feedback.status.status import StatusWrite
from processing.handlers.handler import Handler
from processing.logs import bound, get_logger
from processing.worker.calls import Calls
from processing.worker.session import Session
from processing.worker.task import Task

if TYPE_CHECKING:
    from feedback.tracing.spans import OpenSpan, Spans

Settling: TypeAlias = Callable[[Sequence[Task], Sequence[Task]], AbstractContextManager[None]]
"""What is entered while the ends of tasks are written and committed: plain ones, and others."""
_log = get_logger("oncepool.tracing")
_NOTHING: Final = nullcontext()
_FAILED: Final = frozenset({State.FAILED, State.IN_DOUBT, State.DEAD})


def untraced(_plain: Sequence[Task], _ended: Sequence[Task]) -> AbstractContextManager[None]:
    """Where tracing is off."""
    return _NOTHING


class TracedRuns:
    """Makes the spans of one worker's runs. A run that is done again has a span of its own."""

    def __init__(self, spans: Spans, group: str) -> None:
        """`group` is the consumer group."""
        self._spans = spans
        self._group = group

    def run(self, task: Task) -> AbstractContextManager[None]:
        """A request's handler runs."""
        return _Harmless(self._run(task))

    def batch(self, tasks: Sequence[Task]) -> AbstractContextManager[None]:
        """A batch handler runs: one span for all of its requests."""
        return _Harmless(self._run(tasks[0]) if len(tasks) == 1 else self._run_batch(tasks))

    def settling(
        self, plain: Sequence[Task], ended: Sequence[Task]
    ) -> AbstractContextManager[None]:
        """The ends of tasks are written and committed. What did not run has no part in it."""
        return _Harmless(self._settle(plain, ended))

    @contextmanager
    def _run(self, task: Task) -> Iterator[None]:
        with self._processing([task], self._of_one(task)) as span:
            try:
                yield
            finally:
                _judge(span, task)

    @contextmanager
    def _run_batch(self, tasks: Sequence[Task]) -> Iterator[None]:
        attributes: dict[str, str | int] = {
            "messaging.consumer.group.name": self._group,
            "messaging.batch.message_count": len(tasks),
            "oncepool.request.type": tasks[0].envelope.type,
        }
        with self._processing(tasks, attributes) as span:
            try:
                yield
            finally:
                failed = [task for task in tasks if _has_failed(task)]
                if failed:
                    span.say({"oncepool.failed_count": len(failed)})
                    _judge(span, failed[0], one_of_many=True)

    @contextmanager
    def _settle(self, plain: Sequence[Task], ended: Sequence[Task]) -> Iterator[None]:
        ran = [task for task in (*plain, *ended) if hasattr(task, "traced")]
        runs = {task.traced.span_id: task.traced for task in ran}  # a batch has one for all
        if not runs:
            yield
            return
        attributes: dict[str, str | int] = {
            "messaging.consumer.group.name": self._group,
            "messaging.batch.message_count": len(ran),
        }
        with self._spans.settling(_topic(ran), attributes, list(runs.values())):
            yield

    @contextmanager
    def _processing(
        self, tasks: Sequence[Task], attributes: dict[str, str | int]
    ) -> Iterator[OpenSpan]:
        creators = [task.envelope.headers for task in tasks]
        with self._spans.processing(_topic(tasks), attributes, creators) as span:
            for task in tasks:
                task.traced = span.context
            with bound(trace_id=span.trace_id):
                yield span

    def _of_one(self, task: Task) -> dict[str, str | int]:
        from feedback.tracing.spans import at_offset, of_message

        e = task.envelope
        found: dict[str, str | int] = {
            "messaging.consumer.group.name": self._group,
            **of_message(e.id, e.type, e.key),
            "oncepool.request.attempt": task.attempt,
        }
        if e.partition >= 0:  # else it came from the journal, and no message asked for it
            found |= at_offset(e.partition, e.offset)
        return found


class _Harmless:
    """Enters and leaves what makes a span; what goes wrong there is logged, and nothing else."""

    def __init__(self, span: AbstractContextManager[None]) -> None:
        self._span = span
        self._entered = False

    def __enter__(self) -> None:
        try:
            self._span.__enter__()
            self._entered = True
        except Exception:  # noqa: BLE001 - no reason for a request to fail
            _log.exception("a span was not begun")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        place: TracebackType | None,
    ) -> None:
        if not self._entered:
            return
        try:
            self._span.__exit__(kind, error, place)
        except Exception as trouble:  # noqa: BLE001 - as above
            if trouble is not error:
                _log.exception("a span was not ended")


class TracedCalls(Calls):
    """Calls handlers, each in a span."""

    def __init__(
        self, session: Session, publish: Callable[[list[StatusWrite]], None], runs: TracedRuns
    ) -> None:
        super().__init__(session, publish)
        self._runs = runs

    def one(self, task: Task, handler: Handler) -> None:
        with self._runs.run(task):
            super().one(task, handler)

    def batch(self, tasks: Sequence[Task], handler: Handler) -> None:
        with self._runs.batch(tasks):
            super().batch(tasks, handler)


def calls_of(
    session: Session, publish: Callable[[list[StatusWrite]], None], runs: TracedRuns | None
) -> tuple[Calls, Settling]:
    """What calls handlers, and what their ends are written in; `runs` is None where it is off."""
    if runs is None:
        return Calls(session, publish), untraced
    return TracedCalls(session, publish, runs), runs.settling


def _topic(tasks: Sequence[Task]) -> str | None:
    """The one topic of them all."""
    topics = {task.envelope.topic for task in tasks}
    return topics.pop() if len(topics) == 1 else None


def _has_failed(task: Task) -> bool:
    """Neither Reject nor Retry is a failure: they are what the handler has to say."""
    outcome = task.outcome
    return outcome is not None and outcome.state in _FAILED and outcome.retry is None


def _judge(span: OpenSpan, task: Task, *, one_of_many: bool = False) -> None:
    """Says how a run has ended."""
    outcome = task.outcome
    if outcome is None:
        return
    if not one_of_many:
        span.say({"oncepool.state": str(outcome.state), "oncepool.code": outcome.code})
    if _has_failed(task):
        with _NOTHING if outcome.raised is None else outcome.raised.shown():
            span.fail(outcome.cause, outcome.code, outcome.error or outcome.reason)
