"""What a POST asks for: options out of its headers, and whether it is sent at all."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from consumer.gateway.problems import HttpProblem, another_payload, invalid
from feedback.client.message import SubmitOptions
from feedback.contract.fingerprint import parse_and_fingerprint
from feedback.contract.headers import JSON, parse_time
from feedback.contract.states import State
from feedback.contract.times import moment
from feedback.status.status import Status

_TRACE: Final = ("traceparent", "tracestate")
_PREFIX: Final = "ce-"
_ELSEWHERE: Final = {
    "ce-id": "Idempotency-Key",
    "ce-type": "the path",
    "ce-replyto": "Prefer: wait=N",
    "ce-time": "the time at which it was sent",
    "ce-datacontenttype": "Content-Type",
}
"""Attributes of an event that are said in another way here."""

_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_ESCAPED: Final = re.compile(r"\\(.)")
_FORMS: Final = frozenset({"application/x-www-form-urlencoded", "multipart/form-data"})


class Payload(NamedTuple):
    """A body that a consumer takes."""

    body: bytes
    content_type: str
    fingerprint: bytes


def read_payload(type: str, body: bytes, content_type: str | None) -> Payload:
    """The payload of a request of this type. Raises HttpProblem."""
    kind = content_type or JSON
    if kind.lower().startswith("application/cloudevents"):
        raise HttpProblem(
            415,
            "unsupported_media_type",
            "send the event's data as the body, and its attributes as headers (binary mode)",
        )
    if said := said_to_be_a_form(kind):
        raise HttpProblem(415, "unsupported_media_type", said)
    try:
        return Payload(body, kind, parse_and_fingerprint(type, body, kind)[1])
    except ValueError as error:
        raise invalid(
            f"the body is not JSON ({error}); say what it is in Content-Type", "invalid_payload"
        ) from None


def said_to_be_a_form(content_type: str) -> str:
    """What to do about a body of this type, which a form has; nothing where it is another.

    So programs call JSON that were not told what it is, and no handler would find JSON in it.
    """
    form = content_type.partition(";")[0].strip().lower()
    if form not in _FORMS:
        return ""
    return (
        f"the body is said to be a form ({form}); say what it is in Content-Type, as in"
        " curl -H 'content-type: application/json'"
    )


def read_options(headers: Iterable[tuple[bytes, bytes]], content_type: str) -> SubmitOptions:
    """What headers of CloudEvents' HTTP binding ask for. Raises HttpProblem.

    Attributes without a meaning here are handed on to the handler, and so is the trace context.
    """
    options: SubmitOptions = {}
    further: dict[str, str | bytes] = {}
    seen: set[str] = set()
    if content_type != JSON:
        further["content-type"] = content_type
    for raw_name, raw in headers:
        name = raw_name.decode("latin-1").lower()
        if not name.startswith(_PREFIX) and name not in _TRACE:
            continue
        if name in _ELSEWHERE:
            raise invalid(f"the header {name} has no meaning here: it is {_ELSEWHERE[name]}")
        if name in seen:
            raise invalid(f"the header {name} stands more than once")
        seen.add(name)
        _take(name, _text(name, raw), options, further)
    if further:
        options["headers"] = further
    return options


def _take(name: str, text: str, options: SubmitOptions, further: dict[str, str | bytes]) -> None:
    match name:
        case "ce-partitionkey":
            options["key"] = text
        case "ce-reference":
            options["reference"] = text
        case "ce-notbefore":
            options["not_before"] = _time(name, text)
        case "ce-expirytime":
            options["expires"] = _time(name, text)
        case "ce-timeout":
            options["timeout"] = _seconds(name, text)
        case "traceparent" | "tracestate":
            further[name] = text
        case _:
            further[f"ce_{name.removeprefix(_PREFIX)}"] = text


def is_sent(
    known: Status | None,
    type: str,
    payload: Payload,
    uncompared: Collection[str] = (),
    *,
    now: datetime,
) -> bool:
    """Whether a request whose id has this status is sent, rather than answered with it.

    One that is final, or is not due yet, needs no second copy. Any other may have been lost, and a
    copy too many does no harm. `uncompared` are types whose payloads can't be compared. Raises
    HttpProblem where the id is another request's.
    """
    if known is None:
        return True
    compared = None if type in uncompared else payload.fingerprint.hex()
    if known.of_another_type(type) or known.of_another_payload(compared):
        raise another_payload(known.id)
    waits = known.state is State.WAITING and (known.retry_at is None or known.retry_at > now)
    return not (known.final or waits)


def _text(name: str, raw: bytes) -> str:
    """Attributes may be quoted and percent-encoded: section 3.1.3.2 of the binding."""
    try:
        text = raw.decode()
        if name.startswith(_PREFIX):
            if _QUOTED.fullmatch(text):
                text = _ESCAPED.sub(r"\1", text[1:-1])
            text = unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise invalid(f"the header {name} is not UTF-8") from None
    return text


def _time(name: str, text: str) -> datetime:
    try:
        return moment(parse_time(text))
    except (ValueError, OverflowError) as error:
        raise invalid(f"the header {name}: {error}") from None


def _seconds(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise invalid(f"the header {name} is {text[:60]!r}, not a number of seconds") from None


def refused(error: ValueError | TypeError, **members: Any) -> HttpProblem:
    """What the client's own checks say of a request that no consumer would take."""
    return invalid(str(error), **members)
