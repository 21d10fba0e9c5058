"""What tests give to handlers: payloads, requests, cursors to keep clean, a flag to stop."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from feedback.contract.payloads import write_json
from feedback.contract.times import later
from processing.handlers.errors import OncepoolError
from processing.handlers.handler import Handler
from processing.handlers.request import Request
from processing.handlers.stopping import STOPPING
from processing.handlers.validation import did_you_mean

_TIMEOUT = 300.0
_numbers = itertools.count(1)


class KitError(OncepoolError):
    """The test asks for what cannot be: says what to give instead."""


def request_for(handler: Handler, payload: Any, given: dict[str, Any]) -> Request[Any]:
    """A request of this handler; `given` are fields of it. Raises KitError for others."""
    seconds = handler.timeout or _TIMEOUT
    fields: dict[str, Any] = {
        "id": f"test-{next(_numbers)}",
        "type": handler.type,
        "key": None,
        "attempt": 1,
        "headers": {},
        "deadline": later(datetime.now(UTC), seconds),
        "topic": "test",
        "partition": 0,
        "offset": 0,
        "payload": payload,
        "follow_ups": None if handler.effect == "none" else [],
    }
    for name in given:
        if name not in fields or name in ("type", "payload", "follow_ups"):
            raise KitError(nearest("field of a request", name, fields))
    fields |= given
    return Request(**fields | {"headers": dict(fields["headers"])})  # the handler may change them


def payload_bytes(payload: Any) -> bytes | None:
    """A payload as a message carries it."""
    if payload is None or isinstance(payload, bytes):
        return payload
    if isinstance(payload, BaseModel):
        return payload.model_dump_json(by_alias=True).encode()
    return write_json(payload)


@contextlib.contextmanager
def savepoint(tx: Any) -> Iterator[None]:
    """What raises inside leaves nothing in a real transaction."""
    psycopg = sys.modules.get("psycopg")  # not loaded: then this is no cursor of it
    if psycopg is None or not isinstance(tx, psycopg.Cursor):
        yield
        return
    with tx.connection.cursor() as own:
        own.execute("SAVEPOINT oncepool_kit")
        try:
            yield
        except BaseException:
            own.execute("ROLLBACK TO SAVEPOINT oncepool_kit")
            raise


@contextlib.contextmanager
def stopping_flag(stopping: bool) -> Iterator[None]:
    """`request.stopping` says so inside."""
    if stopping:
        STOPPING.set()
    try:
        yield
    finally:
        if stopping:
            STOPPING.clear()


def nearest(what: str, name: object, known: Mapping[str, object]) -> str:
    """Words for a name that is not known."""
    hint = did_you_mean(str(name), known)
    return f"there is no {what} {name!r}{hint} Known: {', '.join(known) or 'none'}"
