"""One record of a chunk on its way through the executor."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from feedback.envelope import Envelope, read
from feedback.errors import Malformed
from feedback.fingerprint import fingerprint
from feedback.record import TOPIC, Record
from feedback.rows import Stored
from feedback.states import EXPIRED, INVALID_PAYLOAD, UNKNOWN_TYPE, State
from processing.app import App
from processing.costs import kind_of
from processing.decoder import Skip, decode
from processing.errors import InvalidPayload
from processing.handler import Handler
from processing.outcomes import Outcome, outcome_of, safe_text
from processing.request import Request

DEFAULT_TTL = 3600
NOT_BEFORE_UNSUPPORTED = "not_before_unsupported"


@dataclass(slots=True)
class Limits:
    """What a request may be and take."""

    default_timeout: float
    max_payload: int


class Task:
    """A request, what the journal has of it, and how it ends."""

    __slots__ = (
        "claimed_run", "deaths", "envelope", "fingerprint", "handler", "index", "lost", "outcome",
        "payload", "record", "result", "seconds", "started", "stored", "timeout",
    )  # fmt: skip

    def __init__(self, index: int, record: Record, envelope: Envelope) -> None:
        self.index = index
        self.record = record
        self.envelope = envelope
        self.handler: Handler | None = None
        self.payload: Any = None
        self.fingerprint: bytes | None = None
        self.stored: Stored | None = None
        self.outcome: Outcome | None = None
        """How it ends; None until that is known."""
        self.result: bytes | None = None
        self.timeout = 0.0
        self.started: float | None = None
        """Epoch seconds at which its handler was entered."""
        self.seconds = 0.0
        """What its handler took."""
        self.lost = 0
        """Starts before this one that ended with their worker and have no row."""
        self.deaths = 0
        """How many of its starts, this one among them, killed their worker."""
        self.claimed_run: int | None = None
        """The number of this start where a row has it already."""

    @property
    def effect(self) -> str:
        """Where its effects are; a request without a handler has them nowhere but in its row."""
        return "transaction" if self.handler is None else self.handler.effect

    @property
    def kind(self) -> str:
        """What its duration is measured under."""
        return kind_of(self.record)

    @property
    def run(self) -> int:
        """The number of this start."""
        if self.claimed_run is not None:
            return self.claimed_run
        return self.lost + 1 + (0 if self.stored is None else self.stored.run)

    @property
    def crashes(self) -> int:
        """Deaths of workers while it ran, over all its runs."""
        return self.deaths + (0 if self.stored is None else self.stored.crashes)

    @property
    def place(self) -> tuple[str, int, int]:
        """Topic, partition, offset."""
        e = self.envelope
        return e.topic, e.partition, e.offset

    def end(self, outcome: Outcome, result: bytes | None = None) -> None:
        """Says how it ends, and forgets what an earlier try said."""
        self.outcome = outcome
        self.result = result

    def request(self) -> Request[Any]:
        """What the handler may see of it."""
        e = self.envelope
        deadline = datetime.fromtimestamp((self.started or time.time()) + self.timeout, UTC)
        attempt = 1 if self.stored is None else self.stored.attempt
        return Request(
            e.id, e.type, e.key, attempt, e.headers, deadline, e.topic, e.partition, e.offset,
            self.payload,
        )  # fmt: skip

    @property
    def status_ttl(self) -> int:
        """Seconds that its status is kept."""
        return DEFAULT_TTL if self.handler is None else self.handler.status_ttl

    @property
    def tells_fingerprint(self) -> bool:
        """Whether producers can make the same fingerprint, and so compare it."""
        return self.handler is None or not self.handler.custom_fingerprint

    @property
    def told_fingerprint(self) -> bytes | None:
        """The fingerprint for its status."""
        return self.fingerprint if self.tells_fingerprint else None


def read_task(
    app: App, index: int, record: Record, limits: Limits, *, trusted: bool = True
) -> Task | Skip:
    """The request of a record, parsed. Raises Malformed.

    Whatever is wrong with a request that has an id and a type is its outcome, to be journaled. Not
    `trusted` is a record whose fate is decided: no code of the user's sees it, as it may be what
    killed its worker.
    """
    decoder = app.decoders.get(record[TOPIC]) if app.decoders else None
    if decoder is not None and not trusted:
        raise Malformed(
            f"a worker was lost while it had this message: the decoder of topic {record[TOPIC]!r}"
            " was not run again"
        )
    envelope = read(record) if decoder is None else decode(decoder, record)
    if isinstance(envelope, Skip):
        return envelope
    task = Task(index, record, envelope)
    handler = app.handlers.get(envelope.type)
    if handler is None:
        reason = f"no handler of type {envelope.type!r} in this version of the consumer"
        task.end(Outcome(State.FAILED, UNKNOWN_TYPE, reason=safe_text(reason)))
        return task
    task.handler = handler
    task.timeout = _timeout(handler, envelope, limits)
    if not trusted:
        if envelope.payload is not None and not handler.custom_fingerprint:
            task.fingerprint = fingerprint(envelope.type, envelope.payload, envelope.content_type)
        return task
    _parse(task, handler, limits)
    if task.outcome is None and (envelope.expires_at or envelope.not_before):
        _check_times(task)
    return task


def _timeout(handler: Handler, envelope: Envelope, limits: Limits) -> float:
    own = handler.timeout or limits.default_timeout
    if envelope.timeout is None:
        return own
    return min(envelope.timeout, handler.max_timeout or own)


def _parse(task: Task, handler: Handler, limits: Limits) -> None:
    payload = task.envelope.payload
    try:
        task.payload, task.fingerprint = handler.parse(payload, task.envelope.content_type)
    except InvalidPayload as error:
        task.fingerprint = error.fingerprint
        task.end(outcome_of(error))
    except BaseException as error:  # noqa: BLE001 - a validator of the user's that fails
        task.end(outcome_of(error))
    if payload is None:
        task.end(Outcome(State.REJECTED, INVALID_PAYLOAD, reason="the message has no value"))
    elif len(payload) > limits.max_payload:
        reason = f"{len(payload)} bytes of payload; at most {limits.max_payload} are taken"
        task.end(Outcome(State.REJECTED, INVALID_PAYLOAD, reason=reason))


def _check_times(task: Task) -> None:
    now, envelope = time.time(), task.envelope
    if envelope.expires_at is not None and envelope.expires_at <= now:
        task.end(Outcome(State.REJECTED, EXPIRED, reason="it expired before it was started"))
    elif envelope.not_before is not None and envelope.not_before > now:
        reason = "delayed requests are not supported by this version; send it when it is due"
        task.end(Outcome(State.FAILED, NOT_BEFORE_UNSUPPORTED, reason=reason))


__all__ = ["Limits", "Malformed", "Task", "read_task"]
