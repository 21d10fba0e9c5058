"""A task: one record of a chunk on its way through the executor."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from feedback.contract.envelope import Envelope
from feedback.contract.record import Record, kind_of
from feedback.contract.states import (
    COALESCING,
    DELAYED,
    EXPIRED,
    RETRIED,
    UNKNOWN_TYPE,
    State,
)
from feedback.contract.times import moment
from feedback.journal.rows import StoredRequest
from feedback.status.status import DEFAULT_TTL
from processing.handlers.handler import Handler
from processing.handlers.outcomes import Done, NotDone, Outcome, Unknown
from processing.handlers.request import FollowUp, Request

_KEPT = frozenset({State.RUNNING, State.IN_DOUBT})
"""States of a row under which the same run may go on."""
_HOLDS = frozenset({DELAYED, COALESCING})
"""Codes of what is held back."""
_HANDED_OUT: Final = object()
"""In place of a payload that code of the user's has."""


class LostStart(NamedTuple):
    """A start that ended with its worker."""

    begun: datetime
    ended: datetime
    cause: str
    """How the worker ended."""
    code: str


class CheckAnswer(NamedTuple):
    """What the check of a request in doubt said."""

    about: tuple[int, str | None]
    """Run and token of the call that it was asked about."""
    said: Done | NotDone | Unknown | None
    """None where it failed."""
    result: bytes | None
    """As JSON, beside Done."""


class Task:
    """A request, what the journal has of it, and how it ends."""

    __slots__ = (
        "answer", "asked_run", "claim", "claimed_run", "deaths", "decoded", "doubted_attempt",
        "envelope", "final", "fingerprint", "first_hold", "follow_ups", "handler",
        "hides_fingerprint", "hold_open", "hold_was_open", "index", "losses", "lost", "now",
        "outcome", "payload", "record", "reference", "result", "seconds", "started", "stored",
        "timeout", "traced", "used", "window_start",
    )  # fmt: skip

    traced: Any  # the context of its run's span; not set where that has none
    answer: CheckAnswer | None
    """What its check said, kept for when the end that it leads to has to be written once more."""
    first_hold: Outcome | None
    """What holds a claimed row back whose hold nobody has decided before."""
    hold_was_open: bool
    """Its claimed row says that nobody has."""
    hold_open: bool
    """Nor is it decided now, as reading failed or something else came first: the row will say so,
    and whoever reads it next decides."""

    def __init__(
        self, index: int, record: Record, envelope: Envelope, now: Callable[[], float] = time.time
    ) -> None:
        """`now` is the time by the database's clock, in seconds since the epoch."""
        self.index = index
        self.record = record
        self.envelope = envelope
        self.now = now
        self.handler: Handler | None = None
        self.payload: Any = None
        self.fingerprint: bytes | None = None
        self.stored: StoredRequest | None = None
        self.claim: str | None = None
        """The token under which its waiting row was claimed; None for a message."""
        self.first_hold = None
        self.hold_was_open = self.hold_open = False
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
        self.follow_ups: Sequence[FollowUp] = ()
        self.result: bytes | None = None
        self.timeout = 0.0
        self.started: float | None = None
        """Epoch seconds at which its handler was entered."""
        self.seconds = 0.0
        """What its handler took."""
        self.lost = 0
        """Starts before this one that ended with their worker and have no row."""
        self.losses: Sequence[LostStart] = ()
        """Its starts that ended with their worker, as far as this instance saw them. There is one
        more than `lost` where this start is one of them."""
        self.deaths = 0
        """How many of its starts, this one among them, killed their worker."""
        self.claimed_run: int | None = None
        """The number of this start where a row has it already."""
        self.doubted_attempt: int | None = None
        """The attempt in doubt whose end this copy finds out, without a start of its own."""
        self.answer = None
        self.asked_run: int | None = None
        """The run in doubt whose check was asked for this copy, and could not tell."""

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
        """The number of this start; without one, of the last start before.

        One that is held back over a row, which failed, is a later one, too: under the run that
        failed no store takes a status of it, as `waiting` ranks below `failed`.
        """
        if self.claimed_run is not None:
            return self.claimed_run
        before = self.lost + (0 if self.stored is None else self.stored.run)
        return before if self.held and self.stored is None else before + 1

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
        if self.doubted_attempt is not None:
            return self.doubted_attempt - 1
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
        # Only among those of one reference, as it may have one, the part of a millisecond matters.
        exact = self.reference is not None or self.hold_open
        return moment(min(e.exact_time if exact else e.time, self.now()))

    @property
    def crashes(self) -> int:
        """Deaths of workers while it ran, over all its runs."""
        return self.deaths + (0 if self.stored is None else self.stored.crashes)

    @property
    def place(self) -> tuple[str, int, int]:
        """Topic, partition, offset."""
        e = self.envelope
        return e.topic, e.partition, e.offset

    def adopt(self, stored: StoredRequest, *, decided: bool) -> None:
        """A claimed row was found: its runs go on, its first message's place is its place.

        Held back it is where nobody has seen to that before, and its end is not `decided`.
        """
        self.claimed_run = stored.run + self.lost  # its first start has the claim's
        self.hides_fingerprint = stored.own_fingerprint
        was_open = self.hold_was_open or _is_new(stored)
        if was_open and self.first_hold is not None and not decided:
            self.end(self.first_hold)
        else:
            self.hold_open = was_open and (self.hold_open or self.first_hold is not None)
            self.reference = stored.coalesce_key
            self.window_start = stored.window_start
        e = self.envelope
        if stored.partition is not None and stored.kafka_offset is not None:
            e.partition, e.offset = stored.partition, stored.kafka_offset

    def end(self, outcome: Outcome, result: bytes | None = None) -> None:
        """Says how it ends, and forgets what an earlier try said.

        A hold that another end comes before is open again: nothing of it is written.
        """
        before = self.outcome
        if before is not None and before.code in _HOLDS and outcome.code not in _HOLDS:
            self.hold_open |= self.held
        self.outcome = outcome
        self.result = result
        self.final = None

    def end_expired(self) -> bool:
        """Ends it, as long as it was not started, where its time is over; whether that is so."""
        expires_at = self.envelope.options.expires_at
        over = expires_at is not None and self.started is None and expires_at <= time.time()
        if over:
            self.end(Outcome(State.REJECTED, EXPIRED, reason="it expired before it was started"))
        return over

    def hand_out(self) -> Any:
        """The payload for code of the user's, which may change it: nobody is given the same object.

        It is parsed anew where it was handed out before; then whatever parsing raises comes out.
        What an earlier entry, or a check, has asked for beside its effects is forgotten.
        """
        self.follow_ups = ()
        payload, self.payload = self.payload, _HANDED_OUT
        if payload is not _HANDED_OUT or self.handler is None:
            return payload
        e = self.envelope
        return self.handler.parse(e.payload, e.options.content_type)[0]

    def request(self, payload: Any) -> Request[Any]:
        """What code of the user's may see of it, with the `payload` that was handed out for that.

        Its headers are a copy: those of its row, and of its next entry, are as they came.
        """
        e = self.envelope
        deadline = moment((self.started or time.time()) + self.timeout)
        follow_ups: list[FollowUp] | None = None
        if self.effect != "none":
            self.follow_ups = follow_ups = []
        return Request(
            e.id, e.type, e.key, self.attempt, dict(e.headers), deadline, e.topic, e.partition,
            e.offset, payload, follow_ups,
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
    def altered(self) -> bool:
        """The payload of its claimed row is not the one that the row's fingerprint was made of.

        What a type's own function made is left out: the next version's may make another one.
        """
        if self.claim is None or self.stored is None or not self.tells_fingerprint:
            return False
        known = self.stored.fingerprint
        return known is not None and self.fingerprint is not None and known != self.fingerprint

    @property
    def row_fingerprint(self) -> bytes | None:
        """The fingerprint for its row: an altered one keeps its own, so that each claim sees it."""
        if self.stored is not None and self.altered:
            return self.stored.fingerprint
        return self.fingerprint

    @property
    def told_fingerprint(self) -> bytes | None:
        """The fingerprint for its status."""
        return self.row_fingerprint if self.tells_fingerprint else None


def share_out(seconds: float, tasks: Sequence[Task]) -> None:
    """What the server takes for them is their time: those of slow triggers share no chunk."""
    for task in tasks:
        task.seconds += seconds / len(tasks)


def _is_new(stored: StoredRequest) -> bool:
    """A row of a request that was parked, asked for, retried as a message, or of an unknown type.

    No worker has written it, or one of an older version: it does not say that its hold is open.
    Whoever knows its type fills in the fingerprint. A time of its own is no matter of its type.
    """
    if stored.fingerprint is not None:
        return False
    if stored.code in (UNKNOWN_TYPE, RETRIED) or stored.not_before is None:
        return True
    return stored.not_before <= stored.produced_at
