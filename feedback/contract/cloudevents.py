"""Structured mode: the whole CloudEvent as JSON in the value, unfolded to headers and payload."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from feedback.contract.headers import OURS, check_name, valid_id
from feedback.contract.payloads import is_json, parse_json, write_json
from feedback.errors import Malformed

_FORMATS = (b"application/cloudevents+json", b"application/cloudevents")
_NOT_OURS = frozenset({"traceparent", "tracestate"})
"""Attributes whose header is W3C's, without `ce_`."""

_TEXT = frozenset({"id", "type", "datacontenttype", "data_base64"})
"""An id or type given as a number would depend on how the sender writes numbers."""

_REPLACED = OURS - {"ce_time"}
"""Headers that an event stands for, but for the one that a message gets which is sent again."""


def is_structured(content_type: bytes | None) -> bool:
    """Whether a message of this content-type header holds its attributes in its value."""
    return content_type is not None and content_type[:23].lower() == b"application/cloudevents"


def unfold(
    headers: Mapping[str, bytes | None], value: bytes | None
) -> tuple[dict[str, bytes | None], bytes | None]:
    """(headers, payload) of the binary message that says the same. Raises Malformed.

    Where the event and the message's headers both name something, the event counts: so one that
    names no id, or can't be read, is the header's.
    """
    named = valid_id(headers.get("ce_id"))
    event = _event(headers["content-type"] or b"", value, named)
    request_id = check_name("id", _text(event, "id", None if "id" in event else named))
    _text(event, "type", request_id)
    payload = _payload(event, request_id)
    unfolded = {name: raw for name, raw in headers.items() if name not in _REPLACED}
    for name in event:
        if name == "datacontenttype":
            unfolded["content-type"] = _text(event, name, request_id).encode()
        elif name not in ("data", "data_base64"):
            header = name if name in _NOT_OURS else f"ce_{name}"
            unfolded[header] = _text(event, name, request_id).encode()
    return unfolded, payload


def _event(content_type: bytes, value: bytes | None, id: str | None) -> dict[str, Any]:
    media_type = content_type.partition(b";")[0].strip().lower()
    if media_type not in _FORMATS:
        name = media_type.decode(errors="replace")
        raise Malformed(f"content type {name!r} is not supported: use {_FORMATS[0].decode()}", id)
    try:
        event = parse_json(value or b"")
    except ValueError as error:
        raise Malformed(f"the structured event is not JSON: {error}", id) from None
    if not isinstance(event, dict):
        raise Malformed("the structured event is not a JSON object", id)
    # The JSON format lets an attribute that is not set stand as null.
    return {name: content for name, content in event.items() if content is not None}


def _text(event: Mapping[str, Any], name: str, id: str | None) -> str:
    content = event.get(name)
    if content is None:
        raise Malformed(f"attribute {name} is missing", id)
    if isinstance(content, str):
        return content
    if name in _TEXT or not isinstance(content, bool | int | float):
        raise Malformed(f"attribute {name} is not a string", id)
    if isinstance(content, bool):
        return "true" if content else "false"
    # Small and large doubles have an exponent, which no header of seconds has.
    return format(Decimal(repr(content)), "f") if name == "timeout" else str(content)


def _payload(event: Mapping[str, Any], id: str) -> bytes | None:
    encoded = event.get("data_base64")
    data = event.get("data")
    if encoded is not None:
        if data is not None:
            raise Malformed("the structured event has both data and data_base64", id)
        try:
            return base64.b64decode(_text(event, "data_base64", id), validate=True)
        except (binascii.Error, ValueError) as error:
            raise Malformed(f"data_base64 is not base64: {error}", id) from None
    if data is None:
        return None
    kind = _text(event, "datacontenttype", id) if "datacontenttype" in event else ""
    if isinstance(data, str) and not is_json(kind or "application/json"):
        return data.encode()
    try:
        return write_json(data)
    except ValueError as error:  # it is read deeper than it is written
        raise Malformed(f"data cannot be a payload: {error}", id) from None
