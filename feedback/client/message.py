"""From what a producer asks for to the message that asks it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from numbers import Real
from typing import Any, Final, TypedDict, Unpack

from feedback.client.pending import ResultAdapter, Submission
from feedback.client.send_clock import SendClock
from feedback.contract.fingerprint import parse_and_fingerprint
from feedback.contract.headers import LONGEST_DELAY, headers_for
from feedback.contract.ids import uuid7
from feedback.contract.payloads import encode_payload
from feedback.contract.unwritable import check_text

_JSON: Final = "application/json"
_JUST_PASSED: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class KafkaMessage:
    """One request as it goes to Kafka, the same each time it is sent."""

    topic: str
    id: str
    key: bytes
    value: bytes
    headers: Sequence[tuple[str, bytes]]
    timestamp: int  # ms


class CallOptions(TypedDict, total=False):
    """What may be said of a request, beside its type and payload. None is as good as left out."""

    request_id: str | None
    """1 to 200 characters without control characters; a UUID of version 7 where none is given. The
    same id always means the same request: sent again it is answered, and does not run again."""
    key: str | bytes | None
    """Requests with the same key run one after the other; the id where none is given."""
    delay: float | timedelta | None
    """Seconds that have to pass before it may run, at most ten years."""
    not_before: datetime | None
    """Aware; it does not run before this time. Instead of `delay`."""
    expires: float | timedelta | datetime | None
    """Seconds from now, or an aware time, after which it is not started any more:
    `rejected/expired`."""
    reference: str | None
    """For types that coalesce: a newer request with the same reference takes its place."""
    headers: Mapping[str, str | bytes] | None
    """Further headers, which its handler gets; `content-type` among them (`application/json`)."""


class SubmitOptions(CallOptions, total=False):
    """The same for submit(), which has one more."""

    timeout: float | None
    """Seconds that one run may take, at most the handler's `max_timeout`."""


def draft(
    type: str | Callable[..., Any],
    payload: Any,
    *,
    topic: str,
    reply_to: str | None,
    clock: SendClock,
    earlier: Callable[[str], Submission | None],
    **options: Unpack[SubmitOptions],
) -> tuple[KafkaMessage, Submission]:
    """The message, and what to remember of it. Raises ValueError for what no consumer takes.

    `earlier` gives what is remembered of an id: a copy keeps the time of what it is a copy of, so
    that sent again late it is not newer than what was sent meanwhile.
    """
    _check_types(options)
    kind, adapter = _resolve(type)
    request_id, expires = options.get("request_id"), options.get("expires")
    headers = options.get("headers")
    name = str(uuid7()) if request_id is None else request_id
    now = datetime.now(UTC)
    # Under an id of the caller's own it may be the second send of what is due by now.
    late = LONGEST_DELAY if options.get("request_id") is not None else _JUST_PASSED
    due = _due(now, options.get("delay"), options.get("not_before"), late)
    content_type = _content_type(headers)
    value = encode_payload(payload, content_type)
    fingerprint = _fingerprint(kind, value, content_type)
    first = None if request_id is None else earlier(request_id)
    copied = None if first is None or first.fingerprint != fingerprint else first.sent
    sent = clock.next(name) if copied is None else copied
    written = headers_for(
        name,
        kind,
        time=sent.exact,
        expires=None if expires is None else _moment(now, expires),
        not_before=due,
        timeout=options.get("timeout"),
        reference=options.get("reference"),
        reply_to=reply_to,
        extra=headers,
    )
    key = _key(options.get("key"), name)
    message = KafkaMessage(topic, name, key, value, written, sent.timestamp)
    waits_for = 0.0 if due is None else max(0.0, (due - now).total_seconds())
    return message, Submission(
        name, kind, fingerprint, sent=sent, adapter=adapter, waits_for=waits_for,
        copied=None if first is None else first.first,
    )  # fmt: skip


_TAKEN: Final[dict[str, tuple[tuple[type, ...], str]]] = {
    "request_id": ((str,), "text"),
    "key": ((str, bytes), "text or bytes"),
    "delay": ((Real, timedelta), "seconds or a timedelta"),
    "not_before": ((datetime,), "an aware datetime"),
    "expires": ((Real, timedelta, datetime), "seconds, a timedelta or an aware datetime"),
    "reference": ((str,), "text"),
    "headers": ((Mapping,), "a mapping of names to text or bytes"),
    "timeout": ((Real,), "seconds"),
}


def _check_types(options: Mapping[str, Any]) -> None:
    """Raises TypeError in words: programs are not always checked before they run."""
    unknown = options.keys() - SubmitOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"submit() has no option {min(unknown)!r}")
    for name, value in options.items():
        kinds, wanted = _TAKEN[name]
        if value is not None and (not isinstance(value, kinds) or isinstance(value, bool)):
            raise TypeError(
                f"{name} is {value!r} ({value.__class__.__name__}): it has to be {wanted}"
            )
        if isinstance(value, str):
            check_text(name, value)
    for name, content in (options.get("headers") or {}).items():
        if not isinstance(name, str) or not isinstance(content, str | bytes):
            raise TypeError(f"header {name!r} is {content!r}: it has to be text or bytes")
        for text in (name, content):
            if isinstance(text, str):
                check_text(f"header {name!r}", text)


def check_ids(ids: Iterable[object]) -> None:
    """Raises TypeError for what are no ids, as one text is, whose characters would be asked for."""
    if isinstance(ids, str | bytes):
        raise TypeError(f"ids is one text, {ids!r}: hand over a list of request ids")
    for one in ids:
        check_wait(one)


def check_wait(id: object, timeout: float | None = None) -> None:
    """Raises TypeError or ValueError for what nobody can wait for, or not for so long."""
    if not isinstance(id, str):
        raise TypeError(f"a request id is text, not {id!r} ({id.__class__.__name__})")
    check_seconds("timeout", timeout)
    if timeout is not None and math.isnan(timeout):
        raise ValueError("timeout is nan, which no clock ever reaches: give seconds, or None")


def check_seconds(name: str, value: object) -> None:
    """Raises TypeError in words for what is neither a number nor None."""
    if isinstance(value, bool) or not (value is None or isinstance(value, Real)):
        raise TypeError(f"{name} is {value!r} ({value.__class__.__name__}): it has to be seconds")


def _resolve(type: str | Callable[..., Any]) -> tuple[str, ResultAdapter | None]:
    """The type's name and, of a decorated handler, what checks its results."""
    if isinstance(type, str):
        return type, None
    handler = getattr(type, "__oncepool_handler__", None)
    if handler is None:
        raise TypeError(f"{type!r} is neither a request type's name nor a handler of an App")
    return handler.type, handler.result_adapter


def _due(
    now: datetime, delay: float | timedelta | None, not_before: datetime | None, late: timedelta
) -> datetime | None:
    if delay is not None and not_before is not None:
        raise ValueError("delay and not_before exclude each other: give one of them")
    given: object
    if delay is not None:
        wait = delay if isinstance(delay, timedelta) else _seconds("delay", delay)
        name, given = "delay", delay
    elif not_before is not None:
        if not_before.tzinfo is None:
            raise ValueError(f"not_before={not_before} has no time zone: use an aware datetime")
        wait = not_before - now
        name, given = "not_before", not_before
        if -late <= wait < timedelta(0):
            return not_before
    else:
        return None
    if wait < timedelta(0):
        raise ValueError(f"{name}={given} lies in the past: leave it out to have it run at once")
    if wait > LONGEST_DELAY:
        raise ValueError(f"{name}={given} lies more than ten years ahead")
    return now + wait


def _seconds(name: str, seconds: float) -> timedelta:
    try:
        return timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        raise ValueError(f"{name}={seconds} is not a number of seconds up to ten years") from None


def _moment(now: datetime, when: float | timedelta | datetime) -> datetime:
    if isinstance(when, datetime):
        return when
    wait = when if isinstance(when, timedelta) else _seconds("expires", when)
    try:
        return now + wait
    except OverflowError:
        raise ValueError(f"expires={when} lies beyond the year 9999: leave it out") from None


def _content_type(headers: Mapping[str, str | bytes] | None) -> str:
    content_type = (headers or {}).get("content-type", _JSON)
    if isinstance(content_type, bytes):
        content_type = content_type.decode()
    if content_type.lower().startswith("application/cloudevents"):
        raise ValueError("the client writes its attributes as headers: leave out content-type")
    return content_type


def _key(key: str | bytes | None, id: str) -> bytes:
    # Resends and conflicts of one id meet on one partition, in one lane.
    if key is None:
        return id.encode()
    return key.encode() if isinstance(key, str) else key


def _fingerprint(type: str, value: bytes, content_type: str) -> str:
    try:
        return parse_and_fingerprint(type, value, content_type)[1].hex()
    except ValueError as error:
        raise ValueError(
            f"the payload is not JSON ({error}). Say what it is: "
            'headers={"content-type": "application/octet-stream"}'
        ) from error
