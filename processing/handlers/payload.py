"""A payload as its handler takes it, and its fingerprint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from feedback.contract.payloads import (
    canonical,
    digest_bytes,
    fingerprint,
    is_json,
    parse_and_fingerprint,
)
from processing.handlers.annotations import Shape, explain
from processing.handlers.errors import InvalidPayload

Parse = Callable[[bytes | None, str], tuple[Any, bytes]]


def payload_parser(type: str, shape: Shape, own: Callable[[Any], Any] | None) -> Parse:
    """A function from (payload, content type) to (payload object, fingerprint).

    It raises InvalidPayload. `own` is the type's own fingerprint function, called with the
    payload object.
    """
    if shape.raw:
        parse = _raw(type)
    elif shape.adapter is None:
        parse = _plain(type, shape)
    else:
        parse = _validated(type, shape, shape.adapter.validate_json)
    return parse if own is None else _with_own_fingerprint(type, parse, own)


def _raw(type: str) -> Parse:
    def parse(payload: bytes | None, content_type: str) -> tuple[Any, bytes]:
        if payload is None:
            raise _absent(type)
        return payload, fingerprint(type, payload, content_type)

    return parse


def _plain(type: str, shape: Shape) -> Parse:
    wanted = shape.plain_type

    def parse(payload: bytes | None, content_type: str) -> tuple[Any, bytes]:
        value, digest = _json(type, payload, content_type, shape)
        if wanted is not None and not isinstance(value, wanted):
            found = "null" if value is None else value.__class__.__name__
            raise InvalidPayload(f"the payload is {found}, {type} takes {shape.name}", digest)
        return value, digest

    return parse


def _validated(type: str, shape: Shape, validate: Callable[[bytes], Any]) -> Parse:
    def parse(payload: bytes | None, content_type: str) -> tuple[Any, bytes]:
        _, digest = _json(type, payload, content_type, shape)
        try:
            # From the bytes, not from the parsed value: pydantic reads a date, a set or a UUID
            # from JSON even in strict mode, and costs the same. It keeps long integers exact.
            return validate(payload or b""), digest
        except ValidationError as error:
            message = f"the payload is no {shape.name}: {explain(error)}"
            raise InvalidPayload(message, digest) from error

    return parse


def _with_own_fingerprint(type: str, parse: Parse, own: Callable[[Any], Any]) -> Parse:
    def parse_with_own(payload: bytes | None, content_type: str) -> tuple[Any, bytes]:
        value, _ = parse(payload, content_type)
        mark = own(value)
        if isinstance(mark, str):
            mark = mark.encode()
        elif not isinstance(mark, bytes):
            mark = canonical(mark)
        return value, digest_bytes(type, mark)

    return parse_with_own


def _json(type: str, payload: bytes | None, content_type: str, shape: Shape) -> tuple[Any, bytes]:
    if payload is None:
        raise _absent(type)
    if not is_json(content_type):
        raise InvalidPayload(
            f"the content type {content_type!r} is not JSON, and {type} takes {shape.name}",
            digest_bytes(type, payload),
        )
    try:
        return parse_and_fingerprint(type, payload, content_type)
    except ValueError as error:
        raise InvalidPayload(
            f"the payload is not JSON: {error}", digest_bytes(type, payload)
        ) from error


def _absent(type: str) -> InvalidPayload:
    return InvalidPayload("the message has no value (a tombstone)", digest_bytes(type, b""))
