"""A kit for unit tests of handlers, without Kafka, PostgreSQL or Redis.

    from processing.testing import FakeCursor, run

    def test_unknown_article_is_refused() -> None:
        outcome = run(app, "order.place", {"article": "x"}, tx=FakeCursor([]))
        assert (outcome.state, outcome.code) == ("rejected", "unknown_article")

Payloads, parameters, results and exceptions take the way they take in a worker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from feedback.contract.envelope import JSON, Envelope
from feedback.contract.payloads import parse_json
from feedback.contract.states import OK, State
from processing.handlers.app import App
from processing.handlers.decoder import Skip, decode
from processing.handlers.handler import Handler
from processing.handlers.outcomes import Done, NotDone, Outcome, Unknown, outcome_of
from processing.handlers.request import FollowUp, Request
from processing.testing.fake_cursor import FakeCursor
from processing.testing.given import (
    KitError,
    nearest,
    payload_bytes,
    request_for,
    savepoint,
    stopping_flag,
)

__all__ = ["FakeCursor", "Kit", "KitError", "RunOutcome", "run", "run_batch"]

HandlerName = str | Callable[..., Any]
"""A request type, or the function that is registered for it."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a run ended, as the producer would read it."""

    state: State
    """`done`, `rejected`, `failed` or `in_doubt`; retries are not played."""
    code: str
    """`ok`, the code of a Reject, or what the run failed of."""
    result: Any = None
    """What it returned, as a producer reads it."""
    reason: str | None = None
    """For the producer."""
    error: str | None = None
    """For whoever looks after the handler: type, message and place of the exception."""
    retry_at: datetime | None = None
    """What a Retry asked for, aware; None where the policy decides."""
    exception: BaseException | None = None
    """What the handler raised."""
    follow_ups: tuple[FollowUp, ...] = ()
    """What it asked for, where it succeeded."""


class Kit:
    """An app started as in a worker, for `with`. `resources` stand in for the start hooks'."""

    def __init__(self, app: App, resources: Mapping[str, Any] | None = None) -> None:
        self._app = app
        self._resources = resources

    def __enter__(self) -> Self:
        self._app.start_worker(self._resources)
        return self

    def __exit__(self, *_: object) -> None:
        self._app.stop_worker()

    def run(
        self,
        handler: HandlerName,
        payload: Any = None,
        *,
        tx: Any = None,
        stopping: bool = False,
        content_type: str = JSON,
        **request: Any,
    ) -> RunOutcome:
        """Run one request. `payload` is bytes as they are, or what JSON can hold, or a model.

        `tx` is a cursor, real or fake. In a real one a savepoint takes back what a handler did
        that does not succeed; the rest is left in the transaction, to look at and roll back.
        `stopping` is what `request.stopping` says. Other arguments are fields of the request:
        id, key, attempt, headers, deadline, topic, partition, offset.
        """
        found = self._find(handler, batch=False, tx=tx)
        try:
            value, _ = found.parse(payload_bytes(payload), content_type)
        except Exception as error:  # noqa: BLE001 - user code: the outcome says it
            return _ended(outcome_of(error), error)
        made = request_for(found, value, request)
        with stopping_flag(stopping):
            return _attempt(found, lambda: found.call(value, made, tx), made, tx)

    def run_batch(
        self, handler: HandlerName, payloads: Sequence[Any], *, tx: Any = None, **request: Any
    ) -> list[RunOutcome]:
        """Run a batch handler over these payloads: one outcome each, in order.

        What raises fails all. Requests whose payload is invalid are answered and left out.
        """
        found = self._find(handler, batch=True, tx=tx)
        outcomes: dict[int, RunOutcome] = {}
        requests: dict[int, Request[Any]] = {}
        for index, payload in enumerate(payloads):
            try:
                value, _ = found.parse(payload_bytes(payload), JSON)
                requests[index] = request_for(found, value, request)
            except Exception as error:  # noqa: BLE001 - user code: the outcome says it
                outcomes[index] = _ended(outcome_of(error), error)
        try:
            with savepoint(tx):
                results = found.call_batch(list(requests.values()), tx)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
            results = [error] * len(requests)
        for index, result in zip(requests, results, strict=True):
            if isinstance(result, BaseException):
                outcomes[index] = _ended(outcome_of(result), result)
            else:
                outcomes[index] = _done(result, requests[index])
        return [outcomes[index] for index in range(len(payloads))]

    def check(
        self, handler: HandlerName, payload: Any = None, **request: Any
    ) -> Done | NotDone | Unknown:
        """What the handler's check function answers about a request with this payload."""
        found = self._find(handler, batch=None, tx=None)
        if found.check is None:
            raise KitError(f"{found.place} has no check=")
        value, _ = found.parse(payload_bytes(payload), JSON)
        return found.call_check(request_for(found, value, request))[0]

    def decode(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> Envelope | Skip:
        """What the decoder of this topic makes of a message; raises feedback.errors.Malformed."""
        if topic not in self._app.decoders:
            raise KitError(nearest("decoder of topic", topic, self._app.decoders))
        now = time.time_ns() // 1_000_000
        record = (topic, 0, 0, now, key, value, list(headers), None, None)
        return decode(self._app.decoders[topic], record)

    def _find(self, handler: HandlerName, *, batch: bool | None, tx: Any) -> Handler:
        declared = getattr(handler, "__oncepool_handler__", None)
        name = declared.type if isinstance(declared, Handler) else handler
        found = self._app.handlers.get(name) if isinstance(name, str) else None
        if found is None:
            raise KitError(nearest("handler of type", name, self._app.handlers))
        if batch is not None and found.batch is not batch:
            raise KitError(f"{found.place}: use {'run_batch' if found.batch else 'run'}() for it")
        if found.wants_tx and tx is None and batch is not None:
            raise KitError(f"{found.place}: it takes tx; give tx=, a cursor or a FakeCursor")
        return found


def run(
    app: App,
    handler: HandlerName,
    payload: Any = None,
    *,
    resources: Mapping[str, Any] | None = None,
    **options: Any,
) -> RunOutcome:
    """Kit.run with an app that is started for it and stopped after it."""
    with Kit(app, resources) as kit:
        return kit.run(handler, payload, **options)


def run_batch(
    app: App,
    handler: HandlerName,
    payloads: Sequence[Any],
    *,
    resources: Mapping[str, Any] | None = None,
    **options: Any,
) -> list[RunOutcome]:
    """Kit.run_batch with an app that is started for it and stopped after it."""
    with Kit(app, resources) as kit:
        return kit.run_batch(handler, payloads, **options)


def _attempt(
    handler: Handler, call: Callable[[], bytes | None], request: Request[Any], tx: Any
) -> RunOutcome:
    try:
        with savepoint(tx):
            return _done(call(), request)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - user code: the outcome says it
        return _ended(outcome_of(error, handler.effect), error)


def _done(result: bytes | None, request: Request[Any]) -> RunOutcome:
    value = None if result is None else parse_json(result)
    return RunOutcome(State.DONE, OK, value, follow_ups=tuple(request.follow_ups or ()))


def _ended(outcome: Outcome, error: BaseException) -> RunOutcome:
    retry_at = outcome.retry.due(datetime.now(UTC)) if outcome.retry is not None else None
    return RunOutcome(
        outcome.state, outcome.code, None, outcome.reason, outcome.error, retry_at, error
    )
