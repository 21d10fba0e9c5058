"""Everything that Oncepool raises on purpose.

OncepoolError
├── ConfigurationError     a setting is missing or wrong
├── Malformed              a message can't become a request
├── StoreUnavailable       Redis did not take or give statuses
├── ClientError
│   ├── ClientClosed       the client was closed before or during the call
│   ├── QueueFull          the local send queue stayed full
│   ├── DeliveryPending    flush() ran out of time with messages on their way
│   ├── DeliveryFailed     the broker did not confirm a request
│   ├── WaitTimeout        no settled state in time; carries the last status
│   ├── Conflict           the id belongs to a request with another payload
│   ├── ResultMismatch     the result does not fit the handler's annotation
│   └── ResultsFailed      result records can't be read
├── OutboxError
│   ├── OutboxMissing      the outbox's tables are missing or too old
│   ├── OutboxTooNew       a newer Oncepool has upgraded them
│   ├── UnknownSender      no sender of that name was registered
│   └── RequestIdInUse     the outbox has another request under the id
└── JournalError
    ├── SchemaMissing      the journal's tables are missing or too old
    └── SchemaTooNew       a newer Oncepool has upgraded them

The packages above this one add their own branches under OncepoolError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from feedback.status.status import Status


CLOSED: Final = "this client is closed: make a new one"


class OncepoolError(Exception):
    """The root: catch this to catch whatever Oncepool raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Arguments of __init__ are not those of Exception: pickle would make it of the wrong ones,
        # and who waits for a pool of processes would hear that the pool is broken.
        return _made_again, (type(self), self.args, self.__dict__)


def _made_again(
    kind: type[OncepoolError], args: tuple[Any, ...], state: Mapping[str, Any]
) -> OncepoolError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


class ConfigurationError(OncepoolError):
    """A setting is missing or wrong."""


class Malformed(OncepoolError):
    """A message cannot become a request; `id` is set where at least its id is valid."""

    def __init__(self, message: str, id: str | None = None) -> None:
        super().__init__(message)
        self.id = id


class StoreUnavailable(OncepoolError):
    """Redis did not take or give statuses. It only mirrors the journal, so no truth is lost."""


class LimitsUnclear(StoreUnavailable):
    """The answer to a change of limits was lost."""

    def __init__(self, why: str, *, shown: bool | None) -> None:
        """`shown`: whether the limits show it now; None: nobody could look."""
        found = "could not be looked at" if shown is None else "do not show it"
        super().__init__(
            f"the answer to the change was lost, and the limits {found} ({why.rstrip('.')}): look"
            " at them (`oncepool limits show`) and change them again, which does no harm"
        )


class InvalidLimit(OncepoolError):
    """A limit that can't stand, and why."""


class ClientError(OncepoolError):
    """Something went wrong on the producer's side."""


class ClientClosed(ClientError):
    """The client was closed before or during the call, or belongs to another process."""

    def __init__(self, why: str = CLOSED) -> None:
        super().__init__(why)


class QueueFull(ClientError):
    """The local send queue took nothing for the whole `queue_timeout`.

    It is full; or the Kafka producer has failed for good, and no other has taken its place yet.
    """

    def __init__(self, id: str, seconds: float, failure: str | None = None) -> None:
        """`failure`: why the producer has failed; None where the queue is full."""
        full = f"the local send queue stayed full for {seconds:g} s. Check that the brokers answer"
        if failure is not None:
            full = (
                f"the Kafka producer has failed ({failure}), and no other had taken its place after"
                f" {seconds:g} s. See to the cause"
            )
        super().__init__(
            f"request {id!r} was not sent: {full}, then submit it again with the same id"
        )
        self.id = id


class DeliveryPending(ClientError):
    """flush() ran out of time while messages were still on their way."""

    def __init__(self, count: int, seconds: float) -> None:
        super().__init__(
            f"{count} messages have no delivery report after {seconds:g} s: "
            "check that the brokers answer, then call flush() again"
        )
        self.count = count


class RequestTooLarge(ClientError, ValueError):
    """A request is larger than the Kafka producer's message.max.bytes: it was not sent."""


class OversizeCause(str):
    """Why brokers refused a message for its size that can have had none beside it."""

    __slots__ = ()


class SilenceCause(str):
    """Why a message was not confirmed of which no broker has said anything."""

    __slots__ = ()


class DeliveryFailed(ClientError):
    """The broker did not confirm these requests: `failures` maps id to cause.

    Of more than a thousand at once the others are only counted, in `more`.
    Whether they arrived can be unclear. Sending them again with the same ids is safe.
    """

    def __init__(self, failures: Mapping[str, str], more: int = 0) -> None:
        self.failures = dict(failures)
        self.more = more
        if not self.failures:
            super().__init__(
                f"{more} requests were not confirmed by the broker, and their ids were not kept. "
                "Send them again with the same ids: they can't run twice"
            )
            return
        first, cause = next(iter(self.failures.items()))
        count = len(self.failures) + more
        others = f" (and {count - 1} others)" if count > 1 else ""
        super().__init__(
            f"request {first!r}{others} was not confirmed by the broker: {cause}. "
            "Send it again with the same id: it can't run twice"
        )

    @property
    def oversize(self) -> str | None:
        """Why, where all that there is was too large for the brokers: they never take it."""
        causes = list(self.failures.values())
        alone = self.more == 0 and all(isinstance(one, OversizeCause) for one in causes)
        return str(causes[0]) if alone else None

    @property
    def silent(self) -> bool:
        """Whether no broker has refused any of them: sent again, they may be confirmed."""
        return self.more == 0 and all(isinstance(c, SilenceCause) for c in self.failures.values())


class WaitTimeout(ClientError):
    """No settled state came in time; `status` is the last one seen, None where there was none.

    The request may still run. Send it again with the same id, or wait longer.
    """

    def __init__(
        self,
        id: str,
        seconds: float,
        status: Status | None,
        *,
        where: str = "",
        unread: str = "",
        unconfirmed: bool = False,
    ) -> None:
        """`where` its consumers are; `unread`: why nobody could look once more at the end.

        `unconfirmed`: it was sent here, and no broker has confirmed it.
        """
        advice = "Send it again with the same id, or wait longer"
        if unconfirmed and status is None:
            advice = (
                "No broker has confirmed it yet: check that the brokers answer, and that"
                " bootstrap.servers names them, then send it again with the same id, or wait longer"
            )
        elif unread:
            advice = "It may be done: look again when Redis answers, or send it with the same id"
        elif where and (status is None or status.state == "accepted"):  # no consumer has had it
            advice = (
                f"Check that a consumer runs for {where} (`oncepool stats` with the same settings"
                " lists the instances), then send it again with the same id, or wait longer"
            )
        super().__init__(
            f"request {id!r} has no answer after {seconds:g} s ({_last_status(status, unread)}). "
            f"{advice}"
        )
        self.id = id
        self.status = status


def _last_status(status: Status | None, unread: str) -> str:
    if status is None:
        return f"its status could not be read: {unread}" if unread else "no status at all"
    said = [status.state.value if status.code == "ok" else f"{status.state}/{status.code}"]
    if status.reason or status.error:
        said.append(status.reason or status.error or "")
    if status.retry_at is not None:
        said.append(f"it runs at {status.retry_at.isoformat(timespec='seconds')} or soon after")
    later = f"; a later one could not be read: {unread}" if unread else ""
    return f"last status: {': '.join(said)}{later}"


class Conflict(ClientError):
    """The id belongs to a request with another type or payload; `status` is that request's.

    The one that was submitted here never runs. Submit it under an id of its own.
    """

    def __init__(self, id: str, status: Status) -> None:
        super().__init__(
            f"id {id!r} belongs to another request (type {status.type!r}, state {status.state}): "
            "the payload submitted here never runs. Submit it under an id of its own"
        )
        self.id = id
        self.status = status


class ResultMismatch(ClientError):
    """The request is done, but its result does not fit the handler's return annotation."""

    def __init__(self, status: Status, cause: str) -> None:
        super().__init__(
            f"request {status.id!r} is done, but its result does not fit the handler's "
            f"return annotation: {cause}. The plain result is in this error's status"
        )
        self.status = status


class ResultsFailed(ClientError):
    """Result records can't be read, and waiting does not help."""

    def __init__(self, topic: str, cause: str) -> None:
        super().__init__(
            f"no result records from topic {topic!r}: {cause}. Check that it exists "
            "(`oncepool topics create`), that the brokers answer, and the rights on topic and group"
        )
        self.topic = topic


class OutboxError(OncepoolError):
    """Something is wrong with a producer's outbox; the request was not added to it."""


class OutboxMissing(OutboxError):
    """The outbox's tables are missing, or older than this version needs."""

    def __init__(self, schema: str, cause: str) -> None:
        super().__init__(
            f"schema {schema!r} has no outbox that this Oncepool can use ({cause}): run `oncepool"
            " outbox migrate`, or set ONCEPOOL_OUTBOX_SCHEMA to where its tables are"
        )
        self.schema = schema


class OutboxTooNew(OutboxError):
    """A newer Oncepool has upgraded the outbox."""

    def __init__(self, schema: str, found: int, known: int) -> None:
        super().__init__(
            f"the outbox in schema {schema!r} is at version {found}, this Oncepool knows up to "
            f"{known}: install the newer Oncepool here as well"
        )
        self.schema, self.found, self.known = schema, found, known


class UnknownSender(OutboxError):
    """No sender of that name was registered in the outbox, so no relay would send the request."""

    def __init__(self, sender: str, known: Sequence[str]) -> None:
        super().__init__(
            f"the outbox has no sender {sender!r}, it has {', '.join(map(repr, known))}: correct"
            " the name, or add it to ONCEPOOL_OUTBOX_SENDERS and run `oncepool outbox migrate`"
        )
        self.sender, self.known = sender, tuple(known)


class RequestIdInUse(OutboxError):
    """The outbox has a request with another type or payload under this id. Nothing was written."""

    def __init__(self, id: str) -> None:
        super().__init__(
            f"id {id!r} belongs to another request of this outbox: the same id always means the"
            " same type and payload. Add this one under an id of its own"
        )
        self.id = id


class JournalError(OncepoolError):
    """Something is wrong with the journal in PostgreSQL: `what`, and `advice` on what helps."""

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(f"{what}: {advice}")
        self.what, self.advice = what, advice


class SchemaMissing(JournalError):
    """The journal's tables are missing, or older than this version needs."""

    def __init__(self, schema: str, found: int = 0, wanted: int = 0) -> None:
        what = f"is at version {found}, {wanted} is needed" if found else "has no journal tables"
        super().__init__(f"schema {schema!r} {what}", "run `oncepool migrate`")
        self.schema, self.found, self.wanted = schema, found, wanted


class SchemaTooNew(JournalError):
    """A newer Oncepool has upgraded the journal."""

    def __init__(self, schema: str, found: int, known: int) -> None:
        super().__init__(
            f"schema {schema!r} is at version {found}, this Oncepool knows up to {known}",
            "install the newer Oncepool here as well",
        )
        self.schema, self.found, self.known = schema, found, known
