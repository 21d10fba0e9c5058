"""The headers of a request: how each is checked, read and written.

What the functions here refuse is Malformed for a consumer and ValueError for a producer.
"""

from __future__ import annotations

import math
import re
import time as clock
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from feedback.contract.times import moment
from feedback.errors import Malformed

JSON: Final = "application/json"
"""The content type of a message that names none."""
MAX_NAME: Final = 200  # characters of an id, a type or a reference
LONGEST_DELAY: Final = timedelta(days=3653)  # ten years: what lies further ahead is a mistake
CLOCKS_APART: Final = timedelta(hours=1)
"""By which a producer's clock may be ahead: its brokers take no more of it."""

# Headers that the contract gives a meaning to, beside id, type and reply channel.
OPTIONS: Final[tuple[str, ...]] = (
    "content-type",
    "ce_time",
    "ce_expirytime",
    "ce_notbefore",
    "ce_timeout",
    "ce_reference",
)
OURS: Final = frozenset({"ce_id", "ce_type", "ce_replyto", *OPTIONS})
# Named in the contract too, but only handed on: they must be UTF-8.
_TEXT_ONLY: Final = frozenset({"ce_specversion", "ce_source", "traceparent", "tracestate"})

# Halves of a surrogate pair too, which no message can hold, but what user code makes of one.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d"
_TIME = re.compile(rf"\d{{4}}-\d\d-\d\d[Tt ]{_CLOCK}:(\d\d)(\.\d+)?([Zz]|[+-]{_CLOCK})", re.ASCII)
_SECONDS = re.compile(r"\d{1,15}(\.\d{1,100})?", re.ASCII)
_WRITTEN_DIGITS: Final = 15
"""Of a fraction of seconds, as producers write it; more are rounded."""


class OptionalHeaders(NamedTuple):
    """The values of the optional headers. Times are seconds since the epoch."""

    content_type: str = JSON
    time: float | None = None
    expires_at: float | None = None
    not_before: float | None = None
    timeout: float | None = None  # seconds
    reference: str | None = None

    def arguments(self) -> dict[str, Any]:
        """The same for headers_for, which takes a content type among the `extra` ones."""
        return {
            "time": None if self.time is None else moment(self.time),
            "expires": None if self.expires_at is None else moment(self.expires_at),
            "not_before": None if self.not_before is None else moment(self.not_before),
            "timeout": self.timeout,
            "reference": self.reference,
        }


NO_OPTIONS: Final = OptionalHeaders()
"""Of a message without optional headers, as most are."""


def is_too_far(at: float) -> bool:
    """Whether a time, seconds after the epoch, lies further ahead than anything may wait."""
    return at > clock.time() + (LONGEST_DELAY + CLOCKS_APART).total_seconds()


def check_name(what: str, name: str, id: str | None = None) -> str:
    """An id, type or reference: 1 to 200 characters, no control characters; else Malformed."""
    if not name:
        raise Malformed(f"{what} is empty", id)
    if len(name) > MAX_NAME:
        raise Malformed(f"{what} has {len(name)} characters, at most {MAX_NAME} are allowed", id)
    # isprintable is quick, and false for every control character (and for a few others).
    if not name.isprintable() and _CONTROL.search(name):
        raise Malformed(f"{what} contains a control character: {name!r}", id)
    return name


def text_of(name: str, raw: bytes | None, id: str | None) -> str:
    """A header's content. Raises Malformed where it is null or not UTF-8."""
    if raw is None:
        raise Malformed(f"header {name} is null", id)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Malformed(f"header {name} is not UTF-8", id) from None


def valid_id(raw: bytes | None) -> str | None:
    """A header's request id; None where there is none, or none that could be one."""
    try:
        return None if raw is None else check_name("ce_id", text_of("ce_id", raw, None))
    except Malformed:
        return None


def take_options(headers: dict[str, bytes | None], id: str) -> OptionalHeaders:
    """Takes the optional headers out of `headers`. Raises Malformed."""
    texts = {name: text_of(name, headers.pop(name), id) for name in OPTIONS if name in headers}
    if not texts:
        return NO_OPTIONS
    timeout = None
    text = texts.get("ce_timeout")
    if text is not None:
        timeout = round(float(text), _WRITTEN_DIGITS) if _SECONDS.fullmatch(text) else 0.0
        if timeout <= 0:
            raise Malformed(
                f"ce_timeout is {text[:60]!r}, not a positive number of seconds as 30 or 2.5: up to"
                " 15 digits, and up to 100 after the point, of which 15 count",
                id,
            )
    reference = texts.get("ce_reference")
    if reference is not None:
        check_name("ce_reference", reference, id)
    not_before = _time("ce_notbefore", texts, id)
    if not_before is not None and is_too_far(not_before):
        raise Malformed(f"ce_notbefore is {texts['ce_notbefore']}, more than ten years ahead", id)
    return OptionalHeaders(
        content_type=texts.get("content-type") or JSON,
        time=_time("ce_time", texts, id),
        expires_at=_time("ce_expirytime", texts, id),
        not_before=not_before,
        timeout=timeout,
        reference=reference,
    )


def other_headers(headers: Mapping[str, bytes | None], id: str) -> dict[str, str | bytes]:
    """Headers without a meaning here, handed on: as text where they are UTF-8, null as ""."""
    others: dict[str, str | bytes] = {}
    for name, raw in headers.items():
        try:
            others[name] = "" if raw is None else raw.decode()
        except UnicodeDecodeError:
            if name in _TEXT_ONLY:
                raise Malformed(f"header {name} is not UTF-8", id) from None
            others[name] = raw or b""
    return others


def refuse_repeated(pairs: list[tuple[str, bytes | None]]) -> None:
    """A known header that stands twice could mean either: Malformed. Of others the last counts."""
    names = [name for name, _ in pairs if name in OURS]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is None:
        return
    known_id = None
    if names.count("ce_id") == 1:
        known_id = check_name("ce_id", text_of("ce_id", dict(pairs)["ce_id"], None))
    raise Malformed(f"header {repeated} stands more than once", known_id)


def parse_time(text: str) -> float:
    """RFC 3339 to seconds since the epoch. Raises ValueError; a time without offset is one."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:60]!r} is not an RFC 3339 time with an offset")
    if match[1] == "60":  # a leap second is the first one of the next minute
        start = match.start(1)
        return parse_time(f"{text[:start]}59{text[start + 2 :]}") + 1
    return datetime.fromisoformat(text.upper()).timestamp()


def format_time(time: datetime) -> bytes:
    """An aware datetime as RFC 3339 in UTC. Raises ValueError for one without a time zone."""
    if time.tzinfo is None:
        raise ValueError(f"{time} has no time zone: use an aware datetime")
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z").encode()


def headers_for(
    id: str,
    type: str,
    *,
    time: datetime | None = None,
    expires: datetime | None = None,
    not_before: datetime | None = None,
    timeout: float | None = None,
    reference: str | None = None,
    reply_to: str | None = None,
    extra: Mapping[str, str | bytes] | None = None,
) -> list[tuple[str, bytes]]:
    """The headers of a request, for producers; `extra` may hold content-type and unknown ones.

    Raises ValueError for what a consumer would refuse.
    """
    try:
        headers = [
            ("ce_id", check_name("the request id", id).encode()),
            ("ce_type", check_name("the request type", type).encode()),
        ]
        if reference is not None:
            headers.append(("ce_reference", check_name("the reference", reference).encode()))
    except Malformed as error:
        raise ValueError(str(error)) from None
    if reply_to is not None:
        headers.append(("ce_replyto", reply_to.encode()))
    times = (("ce_time", time), ("ce_expirytime", expires), ("ce_notbefore", not_before))
    headers += [(name, format_time(moment)) for name, moment in times if moment is not None]
    if timeout is not None:
        headers.append(("ce_timeout", _format_seconds(timeout)))
    for name, content in (extra or {}).items():
        if name in OURS and name != "content-type":
            raise ValueError(f"header {name!r} has a meaning of its own: use the argument for it")
        raw = content.encode() if isinstance(content, str) else content
        if name in _TEXT_ONLY and not _is_text(raw):
            raise ValueError(f"header {name!r} is not UTF-8")
        headers.append((name, raw))
    return headers


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def reply_channel(pairs: Iterable[tuple[str, bytes | None]] | None) -> str | None:
    """The hint channel of the producer that waits for a request with these headers."""
    raw = dict(pairs or ()).get("ce_replyto")
    return raw.decode(errors="replace") if raw else None


def _time(name: str, texts: Mapping[str, str], id: str) -> float | None:
    text = texts.get(name)
    if text is None:
        return None
    try:
        return parse_time(text)
    except (ValueError, OverflowError) as error:
        raise Malformed(f"{name}: {error}", id) from None


def _format_seconds(seconds: float) -> bytes:
    # Whatever can be read can be written.
    text = f"{seconds:.{_WRITTEN_DIGITS}f}".rstrip("0").rstrip(".")
    if not (_SECONDS.fullmatch(text) and float(text) > 0 and math.isfinite(seconds)):
        raise ValueError(f"timeout is {seconds}, it must be a positive number of seconds")
    return text.encode()
