"""Headers as the journal keeps them: JSON that jsonb takes whatever they hold.

[["name", "text"], ["name", {"base64": "..."}], ["name", null]]: in their order, repeated ones too.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import orjson

from feedback.envelope import JSON, Envelope
from feedback.headers import format_time
from feedback.record import Headers

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Years that datetime can hold, with room for time zones.
_EARLIEST: Final = -62_100_000_000.0
_LATEST: Final = 253_300_000_000.0


def pack_headers(pairs: Iterable[tuple[str, bytes | str | None]]) -> bytes:
    """Name and value pairs to JSON."""
    return orjson.dumps([[_text(name), _packed(value)] for name, value in pairs])


def unpack_headers(stored: Iterable[Any]) -> Headers:
    """The pairs that pack_headers was given, from its parsed JSON."""
    return [(name, _unpacked(value)) for name, value in stored]


def request_headers(envelope: Envelope) -> list[tuple[str, bytes | str | None]]:
    """What the columns of its row do not hold of a request, as headers of binary mode.

    So a request that came in a structured message, or through a decoder, is kept in one form.
    """
    pairs: list[tuple[str, bytes | str | None]] = []
    if envelope.content_type != JSON:
        pairs.append(("content-type", envelope.content_type))
    for name, moment in (
        ("ce_expirytime", envelope.expires_at),
        ("ce_notbefore", envelope.not_before),
    ):
        if moment is not None:
            pairs.append((name, format_time(moment_of(moment))))
    if envelope.timeout is not None:
        pairs.append(("ce_timeout", f"{envelope.timeout:.6f}".rstrip("0").rstrip(".")))
    if envelope.reply_to is not None:
        pairs.append(("ce_replyto", envelope.reply_to))
    pairs.extend(envelope.headers.items())
    return pairs


def moment_of(seconds: float) -> datetime:
    """Seconds since the epoch as a time; the nearest one where no datetime can be so far away."""
    return _EPOCH + timedelta(seconds=min(max(seconds, _EARLIEST), _LATEST))


def _text(text: str) -> str:
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")


def _packed(value: bytes | str | None) -> Any:
    if value is None:
        return None
    data = value.encode(errors="surrogateescape") if isinstance(value, str) else value
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:  # jsonb refuses it
        return {"base64": base64.b64encode(data).decode()}
    return text


def _unpacked(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    return base64.b64decode(value["base64"])
