"""What pydantic does: validates payloads by an annotated type, and writes results of one.

Nothing else of the handlers loads it, and this is loaded for such a type: many an app has none, and
its workers start a quarter sooner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import (
    PydanticSchemaGenerationError,
    PydanticUndefinedAnnotation,
    PydanticUserError,
)
from pydantic_core import PydanticSerializationError

from processing.handlers.annotations import Shape, UnusableAnnotation
from processing.handlers.codec import Encode, Parse, checked, json_value
from processing.handlers.errors import InvalidPayload, InvalidResult
from processing.handlers.plain_values import plain

_SHOWN = 5


def adapter_of(annotation: Any, name: str) -> TypeAdapter[Any]:
    """What pydantic makes of an annotation of this name; raises UnusableAnnotation."""
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        adapter.rebuild(raise_errors=True)
    except PydanticUndefinedAnnotation as error:
        raise UnusableAnnotation(
            f"its annotation {name} uses {error.name!r}, which is not defined; "
            "define or import it before the worker starts"
        ) from error
    except PydanticSchemaGenerationError as error:
        raise UnusableAnnotation(
            f"its annotation {name} is nothing that pydantic can make from JSON; use a pydantic "
            "model, a dataclass, a TypedDict, dict, list or bytes"
        ) from error
    except PydanticUserError as error:
        why = str(error).splitlines()[0]
        raise UnusableAnnotation(f"its annotation {name} is refused by pydantic: {why}") from error
    return adapter


def typed_parser(type: str, shape: Shape, validate: Callable[[bytes], Any]) -> Parse:
    """A function from (payload, content type) to (payload object, fingerprint)."""

    def parse(payload: bytes | None, content_type: str) -> tuple[Any, bytes]:
        _, digest = json_value(type, payload, content_type, shape)
        try:
            # From the bytes, not from the parsed value: pydantic reads a date, a set or a UUID
            # from JSON even in strict mode, and costs the same. It keeps long integers exact.
            return validate(payload or b""), digest
        except ValidationError as error:
            message = f"the payload is no {shape.name}: {_explain(error)}"
            raise InvalidPayload(message, digest) from error

    return parse


def typed_encoder(adapter: TypeAdapter[Any], name: str, owner: str) -> Encode:
    """A function from a returned value to JSON bytes, None for None."""
    validate, dump = adapter.validate_python, adapter.dump_json

    def encode(value: Any) -> bytes | None:
        try:
            valid = validate(value)
            data = dump(valid, by_alias=True)
        except ValidationError as error:
            raise InvalidResult(
                f"{owner} returned {type(value).__name__}, its annotation says {name}: "
                f"{_explain(error)}"
            ) from error
        except (PydanticSerializationError, RecursionError) as error:
            raise InvalidResult(f"{owner} returned what JSON cannot hold: {error}") from error
        if data == b"null" and value is None:
            return None
        if b"null" in data or b"NaN" in data or b"Infinity" in data:  # pydantic writes NaN so
            plain(adapter.dump_python(valid, mode="json", by_alias=True), owner)
        return checked(data, owner)

    return encode


def _explain(error: ValidationError) -> str:
    """What is wrong, in one line, without the values (they may be secret)."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    texts = []
    for problem in problems[:_SHOWN]:
        where = ".".join(str(part) for part in problem["loc"])
        texts.append(f"{where}: {problem['msg']}" if where else problem["msg"])
    if len(problems) > _SHOWN:
        texts.append(f"and {len(problems) - _SHOWN} more")
    return "; ".join(texts)
