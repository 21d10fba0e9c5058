"""How a record is read: the task of a request, with all that is wrong with it as its outcome."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from feedback.contract.envelope import Envelope, read
from feedback.contract.fingerprint import fingerprint
from feedback.contract.payloads import NoMemoryToParse
from feedback.contract.record import CLAIM, TOPIC, Record, claim_token, is_due
from feedback.contract.states import (
    COALESCING,
    DELAYED,
    INVALID_PAYLOAD,
    UNKNOWN_TYPE,
    State,
)
from feedback.contract.times import moment
from feedback.errors import Malformed
from feedback.journal.rows import HOLD_OPEN
from processing.handlers.app import App
from processing.handlers.decoder import Skip, decode
from processing.handlers.errors import InvalidPayload
from processing.handlers.handler import Handler
from processing.handlers.outcomes import Outcome, outcome_of, safe_text
from processing.handlers.tracebacks import let_go
from processing.worker.task import Task


@dataclass(slots=True)
class Limits:
    """What a request may be and take."""

    default_timeout: float
    max_payload: int
    instance: str = "local"
    """Whose claims records of waiting rows are."""
    time: Callable[[], float] = time.time
    """Of the clock that says what is due, in seconds since the epoch."""


def read_task(
    app: App, index: int, record: Record, limits: Limits, *, trusted: bool = True
) -> Task | Skip:
    """The request of a record, parsed. Raises Malformed, and NoMemoryToParse.

    Whatever is wrong with a request that has an id and a type is its outcome, to be journaled; but
    that memory is short is nothing that is wrong with it. Not `trusted` is a record whose fate is
    decided: no code of the user's sees it, as it may be what killed its worker.
    """
    claim = record[CLAIM] if is_due(record) else None
    decoder = None if claim is not None or not app.decoders else app.decoders.get(record[TOPIC])
    if decoder is not None and not trusted:
        raise Malformed(
            f"a worker was lost while it had this message: the decoder of topic {record[TOPIC]!r}"
            " was not run again"
        )
    envelope = read(record) if decoder is None else decode(decoder, record)
    if isinstance(envelope, Skip):
        return envelope
    task = Task(index, record, envelope, limits.time)
    if claim is not None:
        task.claim = claim_token(limits.instance, claim)
        _read_open_hold(task)
    else:
        task.decoded = decoder is not None
    handler = app.handlers.get(envelope.type)
    if handler is None:
        task.hold_open = True
        reason = f"no handler of type {envelope.type!r} in this version of the consumer"
        task.end(Outcome(State.FAILED, UNKNOWN_TYPE, reason=safe_text(reason)))
        if claim is None:  # else it has come by the clock that counts, though not by this one
            _delay(task, envelope.options.not_before, limits)
        return task
    task.handler = handler
    task.timeout = _timeout(handler, envelope, limits)
    if not trusted:
        task.hold_open = True
        task.fingerprint = _plain_fingerprint(task, handler)
        return task
    _parse(task, handler, limits)
    options = envelope.options
    timed = options.expires_at is not None or options.not_before is not None
    if task.outcome is None and (timed or handler.not_before or handler.coalesce):
        try:
            _hold(task, handler, envelope, limits)
        except BaseException as error:  # noqa: BLE001 - of functions of the user's
            _end_by(task, error)
    task.hold_open = task.outcome is not None and not task.held
    return task


def _read_open_hold(task: Task) -> None:
    envelope = task.envelope
    task.hold_was_open = envelope.headers.pop(HOLD_OPEN, None) is not None
    if envelope.options.not_before is not None and not task.hold_was_open:
        # It is over, or its row would not be due.
        envelope.options = envelope.options._replace(not_before=None)


def _timeout(handler: Handler, envelope: Envelope, limits: Limits) -> float:
    own = handler.timeout or limits.default_timeout
    asked = envelope.options.timeout
    if asked is None:
        return own
    return min(asked, handler.max_timeout or own)


def _plain_fingerprint(task: Task, handler: Handler) -> bytes | None:
    """The fingerprint without code of the user's; None where only that can make it.

    And where there is no memory for it, so that what ends its worker each time comes to an end.
    """
    e = task.envelope
    if e.payload is None or handler.custom_fingerprint:
        return None
    try:
        return fingerprint(e.type, e.payload, e.options.content_type)
    except MemoryError:
        return None


def _parse(task: Task, handler: Handler, limits: Limits) -> None:
    payload = task.envelope.payload
    if payload is not None and len(payload) > limits.max_payload:
        # Nobody reads what is too large, validators of the user's least of all: to a row it is
        # what any other payload is that its type does not take, the same one or another.
        task.fingerprint = fingerprint(handler.type, payload, task.envelope.options.content_type)
        reason = f"{len(payload)} bytes of payload; at most {limits.max_payload} are taken"
        task.end(Outcome(State.REJECTED, INVALID_PAYLOAD, reason=reason))
        return
    try:
        task.payload, task.fingerprint = handler.parse(payload, task.envelope.options.content_type)
    except InvalidPayload as error:
        task.fingerprint = error.fingerprint
        task.end(outcome_of(error))
    except NoMemoryToParse:
        raise
    except BaseException as error:  # noqa: BLE001 - a validator of the user's that fails
        task.fingerprint = _plain_fingerprint(task, handler)
        _end_by(task, error)
    if payload is None:
        task.end(Outcome(State.REJECTED, INVALID_PAYLOAD, reason="the message has no value"))


def _end_by(task: Task, error: BaseException) -> None:
    """Code of the user's raised that."""
    task.end(outcome_of(error))
    let_go(error)


def _hold(task: Task, handler: Handler, envelope: Envelope, limits: Limits) -> None:
    """Ends what came too late, holds back what came too early or may give way to a newer one."""
    options = envelope.options
    if task.end_expired():
        return
    due = options.not_before
    if due is None and handler.not_before is not None:
        due = handler.due(task.hand_out())
    if due is not None:
        _delay(task, due, limits)
    elif handler.coalesce is not None:
        task.reference = options.reference or handler.reference(task.hand_out())
        if task.reference is not None:
            task.end(Outcome(State.WAITING, COALESCING))
    if task.claim is not None:
        # Only where nobody has decided it before: its row will tell.
        task.first_hold, task.outcome = task.outcome, None


def _delay(task: Task, due: float | None, limits: Limits) -> None:
    if due is not None and due > limits.time():
        task.end(Outcome(State.WAITING, DELAYED, due=moment(due)))
