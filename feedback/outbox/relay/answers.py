"""What a status says of a request that was sent: it ended, is in work, or goes again. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from feedback.backoff import Backoff
from feedback.contract.headers import CLOCKS_APART
from feedback.contract.payloads import unstorable, write_json
from feedback.contract.states import NOT_RUN, State
from feedback.outbox.names import CONFLICT, WINDOW
from feedback.status.status import Status

RESEND_AFTER: Final = 60.0
MAX_SENDS: Final = 8
"""With a first time-out of a minute, 3 hours of silence."""
PASS_EVERY: Final = 0.5
WHOLE_EVERY: Final = 5.0
YOUNG: Final = 15.0
MOST_BYTES: Final = 8 * 1024 * 1024
"""Of statuses, or of result records, that are taken at once; and one more. Ends are written with
their results, and a parameter of a statement has room for 1 GB."""
_REFUSED: Final = Backoff(1.0, 30.0)
_SENT_BEFORE: Final = timedelta(seconds=1)
"""By which consumers' clocks may be behind the outbox's: what failed so short before a send counts
as failed since. Behind by more, failures of what waited for longer ask for one run more."""
_IN_WORK: Final = frozenset({State.RUNNING, State.WAITING})


@dataclass(frozen=True, slots=True)
class AnswerPolicy:
    """When silence means another send, and when it means that nobody will answer."""

    resend_after: float = RESEND_AFTER
    """Seconds without news after the first send; each further one doubles them."""
    by_type: Mapping[str, float] = field(default_factory=dict)
    """The same for single types."""
    longest: float = 3600.0
    """Seconds, at most, between two sends; or the type's own where those are more."""
    max_sends: int = MAX_SENDS
    """Sends in a row without news, after which a row is `unanswered`."""

    window: float = WINDOW
    """Seconds after its last send, or the time it was delayed to, in which a row is sent again by
    itself: what has been silent for longer may have been forgotten by the consumers, and would run
    twice. Twice `after(type)` where that is more, so that there is time for one silence."""

    def after(self, type_: str) -> float:
        """Seconds without news after the first send."""
        return self.by_type.get(type_, self.resend_after)


class AnswerPace:
    """Which rows to look at next, and how long to rest: most answers come soon or much later.

    Rows that were sent lately are passed over about twice a second, all of them every 5 s; where
    there are many, less often, so that it takes a third of a thread's time at most.
    """

    def __init__(self) -> None:
        self._whole = True
        self._took = 0.0
        self._whole_due = 0.0

    @property
    def young(self) -> float | None:
        """Seconds since the last send of the rows to look at; None: all."""
        return None if self._whole else YOUNG

    def looked(self, seconds: float) -> None:
        """At some rows of the pass, which took so long: what it waited for meanwhile is no work."""
        self._took += seconds

    def ended(self, now: float) -> float:
        """The pass has come to its end: seconds to rest, before the next one begins."""
        took, self._took = self._took, 0.0
        rest = PASS_EVERY
        if self._whole:
            self._whole_due = now + max(WHOLE_EVERY, 9 * took)
        else:
            rest = max(PASS_EVERY, 3 * took)
        self._whole = now + rest >= self._whole_due
        return rest


class RequestKey(NamedTuple):
    """Two applications on one results topic may have a request each under an id."""

    id: str
    type: str


class SentRow(NamedTuple):
    """A row that waits for an answer."""

    seq: int
    id: str
    type: str
    state: str
    """`sent`, `unanswered`, or `unsent` of what was sent, or may have been, and goes again."""
    fingerprint: str
    """In hex."""
    seen: str | None
    sends: int
    tries: int
    due: bool
    """Its time without news is over."""
    stale: bool
    """It was sent so long ago that it must not be sent again by itself."""
    created_at: datetime
    was_sent: bool = True
    """Or may have been."""
    sent_at: datetime | None = None
    """When it was sent last, by the outbox's clock."""

    @property
    def asked_at(self) -> datetime:
        """When it last asked for a run that is still to come, or has come since."""
        if self.state != "sent" or self.sent_at is None:
            return self.created_at
        return max(self.created_at, self.sent_at - _SENT_BEFORE)

    @property
    def key(self) -> RequestKey:
        """Whose answers it waits for."""
        return RequestKey(self.id, self.type)


class Ended(NamedTuple):
    """A request whose end is known, and how a producer is told."""

    seq: int
    id: str
    type: str
    state: str
    code: str
    result: Any
    """As JSON has it."""
    error: str | None


class Later(NamedTuple):
    """Somebody has it, or will: silence is counted anew."""

    seq: int
    seconds: float
    seen: str | None
    waits: float | None = None
    """Seconds for which it waits with the consumers, who forget nothing that waits."""


class Findings(NamedTuple):
    """What to write about some rows."""

    ended: list[Ended]
    later: list[Later]
    again: list[int]
    unanswered: list[int]

    def rows(self) -> frozenset[int]:
        """Of which there is something to write."""
        ended, later = (one.seq for one in self.ended), (one.seq for one in self.later)
        return frozenset((*ended, *later, *self.again, *self.unanswered))

    def of(self, rows: AbstractSet[int]) -> Findings:
        """Of these rows alone."""
        return Findings(
            [one for one in self.ended if one.seq in rows],
            [one for one in self.later if one.seq in rows],
            [seq for seq in self.again if seq in rows],
            [seq for seq in self.unanswered if seq in rows],
        )


def judge(
    rows: Sequence[SentRow], statuses: Sequence[Status | None], policy: AnswerPolicy, now: datetime
) -> Findings:
    """The statuses are those of the rows, in their order; None where there is none."""
    found = Findings([], [], [], [])
    for row, status in zip(rows, statuses, strict=True):
        if status is not None and not _says_nothing(row, status):
            news = _news(row, status, policy, now)
            if isinstance(news, Ended):
                found.ended.append(news)
                continue
            if isinstance(news, Later) and row.state == "sent":
                # Of work it is enough to know once the time without news is over.
                if row.due or status.state not in _IN_WORK:
                    found.later.append(news)
                continue
        if not row.due or row.state != "sent":
            continue
        if row.stale or row.tries >= policy.max_sends:
            found.unanswered.append(row.seq)
        else:
            found.again.append(row.seq)
    return found


def _news(
    row: SentRow, status: Status, policy: AnswerPolicy, now: datetime
) -> Ended | Later | None:
    """None where the status says nothing new of the last send: it is older, or was counted."""
    if status.of_another_type(row.type):
        why = f"a request of type {status.type} was sent under this id, and stands there"
        return Ended(row.seq, row.id, row.type, "undeliverable", CONFLICT, None, why)
    if status.of_another_payload(row.fingerprint):
        why = "another payload was sent under this id, and stands there"
        return Ended(row.seq, row.id, row.type, "undeliverable", CONFLICT, None, why)
    seen = _seen_with(row, status)
    not_run = status.state is State.FAILED and status.code in NOT_RUN
    old = _is_old(row, status)
    if row.seen is not None and (old or (not_run and seen == row.seen)):
        return None
    if old or not_run:
        silence = policy.after(row.type)
        pause = min(_REFUSED.after(max(1, row.sends)), silence) if not_run else silence
        return Later(row.seq, pause, seen)
    if status.settled:
        result, error = status.result, status.error or status.reason
        reason = unstorable(write_json(result))
        if reason is not None:
            result, error = None, _left_out(error, reason)
        return Ended(row.seq, row.id, row.type, str(status.state), status.code, result, error)
    return _of_work(row, status, policy, now) if status.state in _IN_WORK else None


def _of_work(row: SentRow, status: Status, policy: AnswerPolicy, now: datetime) -> Later | None:
    # What was killed shows `running` for good: it is news once. `waiting` is until its time.
    quiet = 0.0 if status.retry_at is None else (status.retry_at - now).total_seconds()
    seen = _seen_with(row, status)
    if seen == row.seen and quiet <= 0:
        return None
    waits = quiet if quiet > 0 else None
    return Later(row.seq, max(0.0, quiet) + policy.after(row.type), seen, waits)


def _as_seen(status: Status) -> str:
    return f"{status.v} {status.at.isoformat()}"


def _is_old(row: SentRow, status: Status) -> bool:
    """Whether a failure is of an earlier send: the row, as sent now, asks for another run.

    As long as nothing was seen that is one from before the send. Clocks differ: it is counted, and
    the next one ends the row, whatever its time. Records have no run number.

    After that it is what was counted, or is from before the row and not above that. A store that
    restarts from a snapshot, or fails over to a replica that is behind, says again what it has said
    before. Neither `v` nor the time tells that alone: what a failure without a row has counted the
    journal counts anew, and clocks differ.
    """
    if status.state is not State.FAILED:
        return False
    if row.seen is None:
        return status.run > 0 and status.at < row.asked_at
    lower = status.run > 0 and status.v <= row.seen.partition(" ")[0]
    return row.seen == _as_seen(status) or (lower and status.at < row.created_at)


def _seen_with(row: SentRow, status: Status) -> str:
    """What the row has seen with this status: what is behind by `v` and time changes nothing."""
    said = _as_seen(status)
    if row.seen is None:
        return said
    v, _, at = row.seen.partition(" ")
    if at == "":  # as earlier versions have written it
        return row.seen if status.v == v else said
    behind = status.v <= v and status.at <= datetime.fromisoformat(at)
    return row.seen if behind else said


def _says_nothing(row: SentRow, status: Status) -> bool:
    """Whether it is no news of this request.

    Nobody has it yet, it is said of somebody else's message that could not be read, or it is the
    record of a request that the outbox has forgotten. A topic is read from its beginning where the
    relay's place in it is gone: its log was cut off at a failover, or its offsets have expired.
    Only what failed has another record later: of all else the journal keeps to what it said.
    """
    record = status.state is State.FAILED and not status.run
    old = record and status.at < row.asked_at - CLOCKS_APART
    return old or status.of_no_request or status.state is State.ACCEPTED


def _left_out(error: str | None, why: str) -> str:
    said = f"the result was left out: {why}"
    return said if error is None else f"{error}; {said}"
