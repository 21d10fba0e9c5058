"""What a handler returned, as JSON that the journal can hold."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable
from datetime import date, datetime, time
from enum import Enum
from typing import Any
from uuid import UUID

import orjson
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from processing.handlers.annotations import Shape, explain
from processing.handlers.errors import InvalidResult

Encode = Callable[[Any], bytes | None]

# A real \u0000 in JSON text: after an even number of backslashes.
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_DEPTH = 250


def result_encoder(shape: Shape, owner: str) -> Encode:
    """A function from a returned value to JSON bytes, None for None; raises InvalidResult.

    `owner` names the handler in its messages.
    """
    adapter, wanted = shape.adapter, shape.plain_type
    if adapter is not None:
        return _annotated(adapter, shape.name, owner)

    def encode(value: Any) -> bytes | None:
        if wanted is not None and not isinstance(value, wanted):
            raise InvalidResult(
                f"{owner} returned {type(value).__name__}, its annotation says {shape.name}"
            )
        if value is None:
            return None
        try:
            data = orjson.dumps(value, default=_default)
        except (TypeError, RecursionError):  # what orjson can't hold: exact integers, or an error
            data = _dump_slowly(value, owner)
        if b"null" in data:  # orjson writes NaN so
            plain(value, owner)
        return checked(data, owner)

    return encode


def _annotated(adapter: TypeAdapter[Any], name: str, owner: str) -> Encode:
    validate, dump = adapter.validate_python, adapter.dump_json

    def encode(value: Any) -> bytes | None:
        try:
            valid = validate(value)
            data = dump(valid, by_alias=True)
        except ValidationError as error:
            raise InvalidResult(
                f"{owner} returned {type(value).__name__}, its annotation says {name}: "
                f"{explain(error)}"
            ) from error
        except (PydanticSerializationError, RecursionError) as error:
            raise InvalidResult(f"{owner} returned what JSON cannot hold: {error}") from error
        if data == b"null" and value is None:
            return None
        if b"null" in data or b"NaN" in data or b"Infinity" in data:  # pydantic writes NaN so
            plain(adapter.dump_python(valid, mode="json", by_alias=True), owner)
        return checked(data, owner)

    return encode


def checked(data: bytes, owner: str) -> bytes:
    """`data` unless the journal's jsonb refuses it."""
    if b"\\u0000" in data and _NUL.search(data):
        raise InvalidResult(
            f"{owner} returned text with the character U+0000, which the journal (jsonb) "
            "cannot hold; remove it"
        )
    return data


def _default(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError


def _dump_slowly(value: Any, owner: str) -> bytes:
    tree = plain(value, owner)
    try:
        return json.dumps(tree, ensure_ascii=False, separators=(",", ":")).encode()
    except ValueError as error:  # integers of more digits than Python writes
        raise InvalidResult(f"{owner} returned what JSON cannot hold: {error}") from error


def plain(value: Any, owner: str, path: str = "result", depth: int = 0) -> Any:
    """`value` in dicts, lists and scalars; raises InvalidResult that says where it can't be."""
    if depth > _DEPTH:
        raise InvalidResult(
            f"{owner} returned a result nested deeper than {_DEPTH} levels, or one that "
            "contains itself"
        )
    if isinstance(value, dict):
        return {
            _key(key, owner, path): plain(item, owner, f"{path}[{key!r}]", depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [plain(v, owner, f"{path}[{i}]", depth + 1) for i, v in enumerate(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: plain(getattr(value, field.name), owner, f"{path}.{field.name}", depth + 1)
            for field in dataclasses.fields(value)
            if not field.name.startswith("_")
        }
    if isinstance(value, Enum):
        return plain(value.value, owner, path, depth + 1)
    if isinstance(value, BaseModel):
        return plain(value.model_dump(mode="json", by_alias=True), owner, path, depth + 1)
    return _scalar(value, owner, path)


def _scalar(value: Any, owner: str, path: str) -> Any:
    match value:
        case None | bool() | int():
            return value
        case str():
            return _text(value, owner, path)
        case float() if math.isfinite(value):
            return value
        case float():
            raise InvalidResult(
                f"{owner}: {path} is {value}, which JSON cannot hold; return None or a text for it"
            )
        case datetime() | date() | time():
            return value.isoformat()
        case UUID():
            return str(value)
        case _:
            raise InvalidResult(f"{owner}: {path} is {_article(value)}; {_advice(value)}")


def _key(key: Any, owner: str, path: str) -> str:
    if isinstance(key, str):
        return _text(key, owner, f"a key of {path}")
    raise InvalidResult(
        f"{owner}: {path} has the key {key!r}, and JSON keys are text; "
        "use str(key), or annotate the return type, as `-> dict[int, str]`"
    )


def _text(value: str, owner: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidResult(
            f"{owner}: {path} has a lone surrogate, which UTF-8 cannot hold; "
            "clean it with text.encode('utf-8', 'replace').decode()"
        ) from None
    return str(value)


def _article(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}, which JSON cannot hold"


def _advice(value: Any) -> str:
    if isinstance(value, BaseException):
        return "raise it instead of returning it"
    if hasattr(value, "__await__"):
        return "the function gave a coroutine that never ran: await it inside asyncio.run(...)"
    return "return plain values, or annotate the return type so that pydantic converts it"
