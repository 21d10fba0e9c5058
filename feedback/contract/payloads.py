"""What a producer hands over as payload, as the bytes of a message."""

from __future__ import annotations

import dataclasses
import json
import math
from decimal import Decimal
from typing import Any

import orjson

from feedback.contract.fingerprint import is_json


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


def _to_json(payload: Any) -> bytes:
    try:
        data = orjson.dumps(payload, default=_plain)
    except TypeError:  # among other things for integers beyond 64 bits
        data = _write_exactly(payload)
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


def _write_exactly(payload: Any) -> bytes:
    try:
        text = json.dumps(
            payload, default=_plainer, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
    except RecursionError:
        raise ValueError("the payload is nested too deeply") from None
    except TypeError as error:
        raise ValueError(f"the payload cannot be written as JSON: {error}") from None
    return text.encode()


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
