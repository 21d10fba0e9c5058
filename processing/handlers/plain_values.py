"""A result in dicts, lists and scalars, as JSON has them; or where in it something else stands."""

from __future__ import annotations

import dataclasses
import math
from datetime import date, datetime, time
from enum import Enum
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from processing.handlers.errors import InvalidResult

_DEPTH = 250


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
