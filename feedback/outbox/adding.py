"""Adds requests to the outbox, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias, Unpack, overload

from feedback.outbox.connections import AsyncExecutor, run
from feedback.outbox.names import schema_from_environment
from feedback.outbox.rows import AddOptions, OutboxRow, row_of
from feedback.outbox.steps import adding

RequestType: TypeAlias = str | Callable[..., Any]
"""A request type's name, or a handler of an App."""
Addition: TypeAlias = tuple[RequestType, Any] | tuple[RequestType, Any, AddOptions]


@overload
def add(
    connection: AsyncExecutor, type: RequestType, payload: Any, **options: Unpack[AddOptions]
) -> Awaitable[str]: ...


@overload
def add(connection: Any, type: RequestType, payload: Any, **options: Unpack[AddOptions]) -> str: ...


def add(
    connection: Any, type: RequestType, payload: Any, **options: Unpack[AddOptions]
) -> str | Awaitable[str]:
    """Writes a request into the outbox; its id. With an asyncio connection, an awaitable of it.

    `connection` is one, a session or a cursor (see connections.py); the request is sent after the
    commit of the transaction that is open on it, and never where that is rolled back. Nothing is
    committed here. Options are those of `Client.submit`, and `sender`. The outbox is in the schema
    that ONCEPOOL_OUTBOX_SCHEMA names, else in `oncepool_outbox`.

    The same id with the same type and payload is the same request, which is not added twice.
    Raises ValueError and TypeError for what no consumer would take, before the database is asked;
    RequestIdInUse, UnknownSender; OutboxMissing and the driver's errors, after which PostgreSQL
    takes nothing but a rollback.
    """
    answer = _write(connection, [row_of(type, payload, options)])
    return answer[0] if isinstance(answer, list) else _only(answer)


@overload
def add_many(connection: AsyncExecutor, requests: Iterable[Addition]) -> Awaitable[list[str]]: ...


@overload
def add_many(connection: Any, requests: Iterable[Addition]) -> list[str]: ...


def add_many(connection: Any, requests: Iterable[Addition]) -> list[str] | Awaitable[list[str]]:
    """As add(), of any number of (type, payload, {options}) in one statement; their ids, in order.

    All of them or, where it raises, none.
    """
    return _write(connection, [_row(n, request) for n, request in enumerate(requests)])


def _row(n: int, request: Addition) -> OutboxRow:
    try:
        kind, payload, *rest = request
        options: AddOptions = rest[0] if rest else {}
        return row_of(kind, payload, options)
    except (ValueError, TypeError) as error:
        error.add_note(f"this was request {n} of add_many()")
        raise


def _write(connection: Any, rows: list[OutboxRow]) -> list[str] | Awaitable[list[str]]:
    schema = schema_from_environment()
    return run(connection, adding(rows, schema), schema)


async def _only(ids: Awaitable[list[str]]) -> str:
    return (await ids)[0]
