"""JSON at the edge of a handler: the payload that it takes, its fingerprint, and its result."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import orjson
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from feedback.contract.fingerprint import canonical, digest_bytes, fingerprint
from feedback.contract.payloads import is_json, parse_json, unstorable
from processing.handlers.annotations import Shape, explain
from processing.handlers.errors import InvalidPayload, InvalidResult
from processing.handlers.plain_values import plain

Parse = Callable[[bytes | None, str], tuple[Any, bytes]]
Encode = Callable[[Any], bytes | None]


def payload_parser(type: str, shape: Shape, own: Callable[[Any], Any] | None) -> Parse:
    """A function from (payload, content type) to (payload object, fingerprint).

    It raises InvalidPayload. `own` is the type's own fingerprint function, called with the
    payload object.
    """
    again: Callable[[bytes], Any]
    if shape.raw:
        parse, again = _raw(type), _same
    elif shape.adapter is None:
        parse, again = partial(_json, type, shape), parse_json
    else:
        again = shape.adapter.validate_json
        parse = _validated(type, shape, again)
    return parse if own is None else _with_own_fingerprint(type, parse, again, own)


def _same(payload: bytes) -> bytes:
    return payload


def _raw(type: str) -> Parse:
    def parse(payload: bytes | None, content_type: str) -> tuple[Any, bytes]:
        if payload is None:
            raise _absent(type)
        return payload, fingerprint(type, payload, content_type)

    return parse


def _validated(type: str, shape: Shape, validate: Callable[[bytes], Any]) -> Parse:
    def parse(payload: bytes | None, content_type: str) -> tuple[Any, bytes]:
        _, digest = _json(type, shape, payload, content_type)
        try:
            # From the bytes, not from the parsed value: pydantic reads a date, a set or a UUID
            # from JSON even in strict mode, and costs the same. It keeps long integers exact.
            return validate(payload or b""), digest
        except ValidationError as error:
            message = f"the payload is no {shape.name}: {explain(error)}"
            raise InvalidPayload(message, digest) from error

    return parse


def _with_own_fingerprint(
    type: str, parse: Parse, again: Callable[[bytes], Any], own: Callable[[Any], Any]
) -> Parse:
    """`again` makes another object of a payload that `parse` has taken."""

    def parse_with_own(payload: bytes | None, content_type: str) -> tuple[Any, bytes]:
        mark = own(parse(payload, content_type)[0])
        if isinstance(mark, str):
            mark = mark.encode()
        elif not isinstance(mark, bytes):
            try:
                mark = canonical(mark)
            except ValueError as error:
                raise ValueError(
                    f"fingerprint= of {type!r} returned {mark.__class__.__name__}; return text,"
                    f" bytes or a JSON value ({error})"
                ) from None
        # The function may have changed what it was given.
        return again(payload or b""), digest_bytes(type, mark)

    return parse_with_own


def _json(type: str, shape: Shape, payload: bytes | None, content_type: str) -> tuple[Any, bytes]:
    """The parsed payload, of the type that is wanted where that is a plain one."""
    if payload is None:
        raise _absent(type)
    if not is_json(content_type):
        raise InvalidPayload(
            f"the content type {content_type!r} is not JSON, and {type} takes {shape.name}",
            digest_bytes(type, payload),
        )
    try:
        value = parse_json(payload)
        digest = digest_bytes(type, canonical(value))
    except ValueError as error:
        raise InvalidPayload(
            f"the payload is not JSON: {error}", digest_bytes(type, payload)
        ) from error
    wanted = shape.plain_type
    if wanted is not None and not isinstance(value, wanted):
        found = "null" if value is None else value.__class__.__name__
        raise InvalidPayload(f"the payload is {found}, {type} takes {shape.name}", digest)
    return value, digest


def _absent(type: str) -> InvalidPayload:
    return InvalidPayload("the message has no value (a tombstone)", digest_bytes(type, b""))


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
    """`data`. Raises InvalidResult where the journal could not give it back."""
    why = unstorable(data)
    if why is not None:
        raise InvalidResult(f"{owner} returned what the journal can't keep: {why}")
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
