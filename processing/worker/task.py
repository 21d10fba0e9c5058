"""A task: one record of a chunk on its way through the executor, and how it is read."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from feedback.contract.envelope import Envelope, read
from feedback.contract.fingerprint import fingerprint
from feedback.contract.headers import check_name
from feedback.contract.record import CLAIM, TOPIC, Record, claim_token, is_due, kind_of
from feedback.contract.states import (
    COALESCING,
    DELAYED,
    EXPIRED,
    INVALID_PAYLOAD,
    RETRIED,
    UNKNOWN_TYPE,
    State,
)
from feedback.contract.times import moment
from feedback.errors import Malformed
from feedback.journal.rows import StoredRequest
from feedback.status.status import DEFAULT_TTL
from processing.handlers.app import App
from processing.handlers.decoder import Skip, decode
from processing.handlers.errors import InvalidPayload
from processing.handlers.handler import Handler
from processing.handlers.outcomes import Outcome, outcome_of, safe_text
from processing.handlers.request import FollowUp, Request

_KEPT = frozenset({State.RUNNING, State.IN_DOUBT})
"""States of a row under which the same run may go on."""


class LostStart(NamedTuple):
    """A start that ended with its worker."""

    begun: datetime
    ended: datetime
    cause: str
    """How the worker ended."""
    code: str


class Task:
    """A request, what the journal has of it, and how it ends."""

    __slots__ = (
        "claim", "claimed_run", "deaths", "decoded", "envelope", "final", "fingerprint",
        "first_hold", "follow_ups", "handler", "hides_fingerprint", "index", "losses", "lost",
        "outcome", "payload", "record", "reference", "result", "seconds", "started", "stored",
        "timeout", "traced", "used", "window_start",
    )  # fmt: skip

    traced: Any  # the context of its run's span; not set where that has none

    def __init__(self, index: int, record: Record, envelope: Envelope) -> None:
        self.index = index
        self.record = record
        self.envelope = envelope
        self.handler: Handler | None = None
        self.payload: Any = None
        self.fingerprint: bytes | None = None
        self.stored: StoredRequest | None = None
        self.claim: str | None = None
        """The token under which its waiting row was claimed; None for a message."""
        self.first_hold: Outcome | None = None
        """What holds a claimed row back that nobody who knows its type has seen before."""
        self.decoded = False
        """Its record is no request by itself: a decoder made it one."""
        self.hides_fingerprint = False
        """Its row says that producers cannot make its fingerprint."""
        self.outcome: Outcome | None = None
        """How its run ends; None until that is known."""
        self.final: Outcome | None = None
        """What becomes of the request then: perhaps another attempt."""
        self.used = 0
        """Attempts used up, with this one."""
        self.reference: str | None = None
        """Under which it coalesces; None where it does not."""
        self.window_start: datetime | None = None
        self.follow_ups: list[FollowUp] = []
        self.result: bytes | None = None
        self.timeout = 0.0
        self.started: float | None = None
        """Epoch seconds at which its handler was entered."""
        self.seconds = 0.0
        """What its handler took."""
        self.lost = 0
        """Starts before this one that ended with their worker and have no row."""
        self.losses: list[LostStart] = []
        """Its starts that ended with their worker, as far as this instance saw them. There is one
        more than `lost` where this start is one of them."""
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
        """The number of this start; without one, of the last start before."""
        if self.claimed_run is not None:
            return self.claimed_run
        before = self.lost + (0 if self.stored is None else self.stored.run)
        return before if self.held else before + 1

    @property
    def held(self) -> bool:
        """It does not start yet: it waits for its time, or for newer ones of its reference."""
        outcome = self.outcome
        return outcome is not None and outcome.state is State.WAITING and self.started is None

    @property
    def entered_for_good(self) -> bool:
        """Its handler was entered, no roll-back undoes that, and it must not be entered again."""
        handler = self.handler
        if handler is None or handler.redelivery or handler.effect != "none":
            return False
        return self.started is not None

    @property
    def used_before(self) -> int:
        """Attempts that were used up before this one. A message of a failed request begins anew."""
        stored = self.stored
        if stored is None or (self.claim is None and stored.state not in _KEPT):
            return 0
        return stored.used

    @property
    def tries_before(self) -> int:
        """How often the queue has tried it where nobody knew its type, since anybody did."""
        stored = self.stored
        if stored is None or self.claim is None or stored.code != UNKNOWN_TYPE:
            return 0
        return stored.attempt

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1; of the queue's own where nobody knows its type."""
        return (self.tries_before if self.handler is None else self.used_before) + 1

    @property
    def produced_at(self) -> datetime:
        """The producer's time: of the row where there is one, else as its message says."""
        if self.stored is not None:
            return self.stored.produced_at
        e = self.envelope
        # Only among those of one reference the part of a millisecond matters.
        return moment(min(e.time, time.time()) if self.reference is None else e.exact_time)

    @property
    def crashes(self) -> int:
        """Deaths of workers while it ran, over all its runs."""
        return self.deaths + (0 if self.stored is None else self.stored.crashes)

    @property
    def place(self) -> tuple[str, int, int]:
        """Topic, partition, offset."""
        e = self.envelope
        return e.topic, e.partition, e.offset

    def adopt(self, stored: StoredRequest) -> None:
        """A claimed row was found: its run is this one, its first message's place is its place."""
        self.claimed_run = stored.run
        self.hides_fingerprint = stored.own_fingerprint
        self.lost = 0  # all of a claim's starts are one run
        if self.first_hold is not None and _is_new(stored):
            self.end(self.first_hold)
        else:
            self.reference = stored.coalesce_key
            self.window_start = stored.window_start
        e = self.envelope
        if stored.partition is not None and stored.kafka_offset is not None:
            e.partition, e.offset = stored.partition, stored.kafka_offset

    def end(self, outcome: Outcome, result: bytes | None = None) -> None:
        """Says how it ends, and forgets what an earlier try said."""
        self.outcome = outcome
        self.result = result
        self.final = None

    def request(self) -> Request[Any]:
        """What the handler may see of it."""
        e = self.envelope
        deadline = moment((self.started or time.time()) + self.timeout)
        self.follow_ups = []
        return Request(
            e.id, e.type, e.key, self.attempt, e.headers, deadline, e.topic, e.partition, e.offset,
            self.payload, None if self.effect == "none" else self.follow_ups,
        )  # fmt: skip

    @property
    def status_ttl(self) -> int:
        """Seconds that its status is kept."""
        return DEFAULT_TTL if self.handler is None else self.handler.status_ttl

    @property
    def keeps_payload(self) -> bool:
        """Its row keeps the payload that it has: this one's could not be compared with it."""
        return self.stored is not None and self.claim is None and self.fingerprint is None

    @property
    def tells_fingerprint(self) -> bool:
        """Whether producers can make the same fingerprint, and so compare it."""
        if self.decoded or self.hides_fingerprint:
            return False
        return self.handler is None or not self.handler.custom_fingerprint

    @property
    def told_fingerprint(self) -> bytes | None:
        """The fingerprint for its status."""
        return self.fingerprint if self.tells_fingerprint else None


def _is_new(stored: StoredRequest) -> bool:
    """A row of a request that was parked, asked for, retried as a message, or of an unknown type.

    Whoever knows its type fills in the fingerprint. A time of its own is no matter of its type.
    """
    if stored.fingerprint is not None:
        return False
    if stored.code in (UNKNOWN_TYPE, RETRIED) or stored.not_before is None:
        return True
    return stored.not_before <= stored.produced_at


@dataclass(slots=True)
class Limits:
    """What a request may be and take."""

    default_timeout: float
    max_payload: int
    instance: str = "local"
    """Whose claims records of waiting rows are."""


def read_task(
    app: App, index: int, record: Record, limits: Limits, *, trusted: bool = True
) -> Task | Skip:
    """The request of a record, parsed. Raises Malformed.

    Whatever is wrong with a request that has an id and a type is its outcome, to be journaled. Not
    `trusted` is a record whose fate is decided: no code of the user's sees it, as it may be what
    killed its worker.
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
    task = Task(index, record, envelope)
    if claim is not None:
        task.claim = claim_token(limits.instance, claim)
        if envelope.options.not_before is not None:  # it is over, or its row would not be due
            envelope.options = envelope.options._replace(not_before=None)
    else:
        task.decoded = decoder is not None
    handler = app.handlers.get(envelope.type)
    if handler is None:
        reason = f"no handler of type {envelope.type!r} in this version of the consumer"
        task.end(Outcome(State.FAILED, UNKNOWN_TYPE, reason=safe_text(reason)))
        _delay(task, envelope.options.not_before)
        return task
    task.handler = handler
    task.timeout = _timeout(handler, envelope, limits)
    if not trusted:
        task.fingerprint = _plain_fingerprint(task, handler)
        return task
    _parse(task, handler, limits)
    options = envelope.options
    timed = options.expires_at is not None or options.not_before is not None
    if task.outcome is None and (timed or handler.not_before or handler.coalesce):
        try:
            _hold(task, handler, envelope)
        except BaseException as error:  # noqa: BLE001 - of functions of the user's
            task.end(outcome_of(error))
    return task


def _timeout(handler: Handler, envelope: Envelope, limits: Limits) -> float:
    own = handler.timeout or limits.default_timeout
    asked = envelope.options.timeout
    if asked is None:
        return own
    return min(asked, handler.max_timeout or own)


def _plain_fingerprint(task: Task, handler: Handler) -> bytes | None:
    """The fingerprint without code of the user's; None where only that can make it."""
    e = task.envelope
    if e.payload is None or handler.custom_fingerprint:
        return None
    return fingerprint(e.type, e.payload, e.options.content_type)


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
    except BaseException as error:  # noqa: BLE001 - a validator of the user's that fails
        task.fingerprint = _plain_fingerprint(task, handler)
        task.end(outcome_of(error))
    if payload is None:
        task.end(Outcome(State.REJECTED, INVALID_PAYLOAD, reason="the message has no value"))


def _hold(task: Task, handler: Handler, envelope: Envelope) -> None:
    """Ends what came too late, holds back what came too early or may give way to a newer one."""
    options = envelope.options
    if options.expires_at is not None and options.expires_at <= time.time():
        task.end(Outcome(State.REJECTED, EXPIRED, reason="it expired before it was started"))
        return
    due = options.not_before
    if due is None:
        due = handler.due(task.payload)
    if due is not None:
        _delay(task, due)
    elif handler.coalesce is not None:
        reference = options.reference or handler.coalesce(task.payload)
        if reference is not None:
            task.reference = check_name("the reference", reference)
            task.end(Outcome(State.WAITING, COALESCING))
    if task.claim is not None:
        # Only where nobody who knows its type has seen its row before: its row will tell.
        task.first_hold, task.outcome = task.outcome, None


def _delay(task: Task, due: float | None) -> None:
    if due is not None and due > time.time():
        task.end(Outcome(State.WAITING, DELAYED, due=moment(due)))
