"""What a client remembers of a request that it has sent, and how it judges a status of it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from threading import Lock
from typing import Any, NamedTuple, Protocol

from feedback.client.send_clock import SendTime
from feedback.contract.states import MAX_RUN, OK, State
from feedback.errors import Conflict, ResultMismatch
from feedback.status.status import Status, StatusFields


class ResultAdapter(Protocol):
    """Checks results: a pydantic TypeAdapter."""

    def validate_json(self, data: bytes, /) -> Any:
        """The result as the handler's annotation says. Raises ValueError."""


class StatusBefore(NamedTuple):
    """What is kept of a status that stood before a send: a result may be large."""

    v: str
    code: str
    at: datetime
    has_row: bool

    @classmethod
    def of(cls, status: Status | None) -> StatusBefore | None:
        """None where none stood."""
        if status is None:
            return None
        return cls(status.v, status.code, status.at, status.has_row)


@dataclass(slots=True)
class Submission:
    """One request of this client. `delivered` and `failure` are set by its polling thread."""

    id: str
    type: str  # empty where it was not sent here
    fingerprint: str | None  # hex; None where its payload is not known here
    sent: SendTime | None = None  # when it was sent first; None where it was not sent here
    before: StatusBefore | None = None  # what stood before it was sent
    unread: datetime | None = None  # when what stood before could not be read
    refused: StatusBefore | None = None  # what made it send again, and is no answer to that
    adapter: ResultAdapter | None = None
    waits_for: float = 0.0  # seconds that it asked not to be run for
    delivered: bool = False
    failure: str | None = None  # why the broker did not confirm it
    told: bool = False  # such a failure was raised by a wait for it
    copied: Submission | None = None  # the first one under its id that is remembered, if not this
    beyond: int = 0  # of the first one: of `UntoldFailures`

    @property
    def first(self) -> Submission:
        """The first one under its id that is remembered: which it is that counts."""
        return self.copied or self

    @property
    def unconfirmed(self) -> bool:
        """Whether it was sent here, and no broker has confirmed it."""
        return self.sent is not None and not self.delivered

    def unread_before(self) -> None:
        """What stands before it is sent can't be read: it may be a failure or a doubt."""
        self.unread = datetime.now(UTC)

    def answer(self, status: Status | None) -> Status | None:
        """The status, where it settles this request, typed; raises Conflict where it is another's.

        A failure or a doubt from before the send is no answer to it: it runs again, or its check is
        asked.
        """
        if status is None or status.state is State.ACCEPTED:
            return None  # a producer's own, which knows nothing of others under this id
        if self.type and status.of_no_request:
            return None  # somebody else's message: what is sent here can be read
        if status.of_another_type(self.type) or status.of_another_payload(self.fingerprint):
            raise Conflict(self.id, status)
        if not status.settled or self._is_old(status):
            return None
        return typed(status, self.adapter)

    def _is_old(self, status: Status) -> bool:
        if status.state not in (State.IN_DOUBT, State.FAILED):
            return False
        if self.before is None and self.unread is not None and status.at < self.unread:
            # It stood before, or a worker's clock is behind: in either case the next one answers.
            self.before = StatusBefore.of(status)
        refused = self.refused is not None and StatusBefore.of(status) == self.refused
        if refused or self.before is None:
            return refused
        if status.state is State.IN_DOUBT:
            # The answer to a resend says it anew, where nobody knows more than before.
            return (status.v, status.at) == (self.before.v, self.before.at)
        if not self.before.has_row:
            # Its run number counts what the journal never saw: a newer one may be lower.
            return status.v <= self.before.v and (status.code, status.at) == (
                self.before.code,
                self.before.at,
            )
        if status.run >= MAX_RUN and self.before.v[:5] == status.v[:5]:
            return status.at <= self.before.at  # it may be of a later run
        return status.v <= self.before.v


def accepted(submission: Submission) -> StatusFields:
    """What a producer says of a request that the broker has."""
    theirs = submission.fingerprint
    return StatusFields(
        submission.id, submission.type, State.ACCEPTED, 0, OK, 0, at=datetime.now(UTC),
        fingerprint=None if theirs is None else bytes.fromhex(theirs),
    )  # fmt: skip


def typed(status: Status, adapter: ResultAdapter | None) -> Status:
    """The status with its result as the handler's annotation says. Raises ResultMismatch."""
    if adapter is None or status.state is not State.DONE:
        return status
    try:
        return replace(status, result=adapter.validate_json(status.result_json or b"null"))
    except ValueError as error:
        raise ResultMismatch(status, str(error)) from error


class Submissions:
    """The latest requests of one client, by id.

    Older ones are forgotten: a wait for them works, but can't tell another payload from theirs.
    """

    def __init__(self, limit: int = 100_000) -> None:
        self._limit = limit
        self._lock = Lock()
        self._by_id: OrderedDict[str, Submission] = OrderedDict()  # guarded by _lock

    def add(self, submission: Submission) -> None:
        """Remembers it in place of an earlier one with its id."""
        with self._lock:
            self._by_id[submission.id] = submission
            self._by_id.move_to_end(submission.id)
            if len(self._by_id) > self._limit:
                self._by_id.popitem(last=False)

    def keep(self, submission: Submission) -> None:
        """Remembers it where it was forgotten meanwhile, and none has its id."""
        if self.get(submission.id) is None:
            self.add(submission)

    def get(self, id: str) -> Submission | None:
        """The latest one with this id."""
        with self._lock:
            return self._by_id.get(id)
