"""Payloads: JSON with exact integers, and what a producer hands over.

orjson makes floats of integers beyond 64 bits, which would give two payloads one fingerprint and a
handler a changed amount: what may hold such an integer is parsed and written by Python's json.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, NoReturn

import orjson

from feedback.contract.unwritable import refuse_unwritable

# 18 digits always fit in 64 bits.
_SUSPECT_RUN: Final = b"0" * 19
_NO_MEMORY: Final = "Not enough memory"
"""What orjson says of JSON that it had no memory to parse, as if it were wrong."""
_DEEPEST: Final = 500
_ZERO: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
LARGEST_RESULT: Final = 63 * 1024 * 1024
"""Bytes of a result's JSON as jsonb writes it. Whoever asks for a request reads it whole:
PostgreSQL gives back no text of 1 GiB, and a sender's queue has room for 64 MiB of statuses."""
_TEXT: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_EXPONENT: Final = re.compile(rb"[eE][+-]?(\d+)")
_LONGEST_NUMBER: Final = 100
"""Bytes that jsonb writes for one of JSON, at most: it has no exponents, and 302 for 1e-300."""
_DIGITS_TO_ZERO: Final = bytes(48 if 48 <= byte <= 57 else 32 for byte in range(256))


class NoMemoryToParse(MemoryError):
    """Nobody knows whether this is JSON."""


def is_json(content_type: str) -> bool:
    """Whether payloads of this media type are JSON: application/json or anything +json."""
    if content_type == "application/json":
        return True
    media_type = content_type.partition(";")[0].strip().lower()
    return media_type == "application/json" or media_type.endswith("+json")


def has_long_number(data: bytes) -> bool:
    """Whether a run of 19 or more digits occurs: orjson might change such an integer."""
    return len(data) >= 19 and _SUSPECT_RUN in data.translate(_DIGITS_TO_ZERO)


def parse_json(data: bytes) -> Any:
    """Parses JSON; integers stay exact.

    Raises ValueError for what is not JSON, NaN among it, and NoMemoryToParse.
    """
    if has_long_number(data):
        return _parse_exactly(data)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if error.msg.startswith(_NO_MEMORY):
            raise NoMemoryToParse(error.msg) from None
        raise


def write_json(value: Any) -> bytes:
    """JSON with exact integers and keys in their own order. Raises ValueError for what it can't."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return write_exactly(value)


def refuse_deep(data: bytes, value: Any, *, around: int = 0) -> None:
    """Raises ValueError where what these bytes hold is nested too deeply to be written again.

    What is read may be nested twice as deep as what Python writes, which depends on who calls.
    `around`: levels of what it is to be a part of, for which the same holds.
    """
    most = _DEEPEST - around
    if data.count(b"[") + data.count(b"{") <= most:
        return
    level = [value]
    for _ in range(most):
        level = [
            item
            for one in level
            for item in (one.values() if isinstance(one, dict) else one)
            if isinstance(item, dict | list)
        ]
        if not level:
            return
    raise ValueError(f"nested deeper than {most} levels")


def write_exactly(
    value: Any, *, sort_keys: bool = False, default: Callable[[Any], Any] | None = None
) -> bytes:
    """As write_json, by Python's json: slower, and for integers of any size. Raises ValueError."""
    try:
        text = json.dumps(
            value,
            sort_keys=sort_keys,
            default=default,
            separators=(",", ":"),
            ensure_ascii=False,
            allow_nan=False,
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except TypeError as error:
        raise ValueError(f"cannot be written as JSON: {error}") from None
    return text.encode()


def unstorable(data: bytes) -> str | None:
    """Why the journal, whose jsonb shall hold this JSON, can't give it back; None where it can."""
    if b"\\u0000" in data and _ZERO.search(data):
        return "it has the character U+0000, which jsonb can't hold"
    if len(data) * _LONGEST_NUMBER > LARGEST_RESULT:
        size = _bytes_from_jsonb(data)
        if size > LARGEST_RESULT:
            return f"as the journal writes it, it has {size} bytes, at most {LARGEST_RESULT}"
    return None


def _bytes_from_jsonb(data: bytes) -> int:
    """At most so many: a space follows each comma and colon, and numbers have all their digits."""
    outside = _TEXT.sub(b"", data)
    spaces = outside.count(b",") + outside.count(b":")
    return len(data) + spaces + sum(int(power) for power in _EXPONENT.findall(outside))


def encode_payload(payload: Any, content_type: str) -> bytes:
    """The message's value. Raises ValueError for what the content type cannot hold.

    Bytes go out as they are. For JSON, anything else is written as JSON: dicts, lists, numbers of
    any size, text (as a JSON string), None (as null), dataclasses, pydantic models (by alias),
    datetimes, UUIDs, enums, and Decimal as text. For other content types text goes out as UTF-8.
    """
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload)
    if is_json(content_type):
        return _to_json(payload)
    if isinstance(payload, str):
        return payload.encode()
    raise ValueError(
        f"a payload of type {type(payload).__name__} cannot be sent as {content_type!r}: "
        "hand over bytes or text, or leave the content type as JSON"
    )


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"number beyond the range of a double: {text[:40]}")
    return value


def _parse_exactly(data: bytes) -> Any:
    try:
        value = json.loads(data.decode(), parse_constant=_refuse_constant, parse_float=_finite)
        # Python's json lets half a surrogate pair through, orjson does not.
        if b"\\u" in data:
            write_json(value)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def _to_json(payload: Any) -> bytes:
    try:
        data = orjson.dumps(payload, default=_plain)
    except TypeError:  # among other things for integers beyond 64 bits
        try:
            data = write_exactly(payload, default=_plainer)
        except (ValueError, TypeError) as error:
            refuse_unwritable(payload)  # says where it is, where it can
            raise ValueError(f"the payload cannot be written as JSON: {error}") from None
    # Both orjson and pydantic write NaN as null, which is another payload.
    if b"null" in data:
        _refuse_nan(payload)
    return data


def _plain(value: Any) -> Any:
    """What the JSON writers don't know, as something that they do."""
    if _is_model(value):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(
        f"a value of type {type(value).__name__} has no JSON form: convert it before submitting"
    )


def _plainer(value: Any) -> Any:
    """For Python's json: also what only orjson knows."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return orjson.loads(orjson.dumps(value)) if not _known(value) else _plain(value)


def _known(value: Any) -> bool:
    return _is_model(value) or isinstance(value, Decimal)


def _is_model(value: Any) -> bool:
    # Without importing pydantic: whoever hands over a model has done that.
    return hasattr(value, "model_dump") and hasattr(type(value), "model_validate")


def _refuse_nan(value: Any) -> None:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"the payload holds {value}, which JSON has no form for")
    elif isinstance(value, dict):
        for item in value.values():
            _refuse_nan(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _refuse_nan(item)
    elif _is_model(value):
        _refuse_nan(value.model_dump())
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            _refuse_nan(getattr(value, field.name))
