"""Handlers that come by the clock: what `@app.periodic` declares, checked at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ValidationError

from feedback.contract.headers import check_name
from feedback.contract.payloads import write_json
from feedback.contract.schedule import (
    LONGEST_SCHEDULE_NAME,
    MISSED,
    Missed,
    Schedule,
    check_cron,
    tick_of,
)
from feedback.errors import Malformed
from processing.handlers.codec import payload_parser
from processing.handlers.errors import InvalidPayload, RegistrationError
from processing.handlers.handler import Handler
from processing.handlers.signature import describe


class Tick(BaseModel):
    """The payload of a request that came by the clock, where its schedule gives no other."""

    schedule: str
    """Its schedule's name."""
    at: datetime
    """When it was due, in UTC; it may run later."""


def read_schedule(
    function: Callable[..., Any],
    cron: str,
    *,
    tz: str,
    name: str | None,
    missed: Missed,
    payload: Any,
) -> Schedule:
    """The schedule of a function that is registered as a handler. Raises RegistrationError."""
    place = f"periodic {cron!r}, {describe(function)}"
    handler = getattr(function, "__oncepool_handler__", None)
    if not isinstance(handler, Handler):
        raise RegistrationError(
            f"{place}: it is no handler yet; write @app.periodic(...) above @app.handler(type)"
        )
    name = handler.type if name is None else name
    try:
        check_name("the schedule's name", name)
        check_cron(cron, tz)
        body = None if payload is None else _payload(payload)
    except (Malformed, ValueError, TypeError) as error:
        raise RegistrationError(f"{place}: {error}") from None
    if len(name) > LONGEST_SCHEDULE_NAME:
        raise RegistrationError(
            f"{place}: its name has {len(name)} characters, at most {LONGEST_SCHEDULE_NAME} leave"
            " room for the time in a request id; give name="
        )
    if missed not in MISSED:
        raise RegistrationError(f"{place}: missed={missed!r}: one of {', '.join(MISSED)}")
    return Schedule(name, handler.type, cron, tz, missed, body)


def refuse_payload(schedule: Schedule, handler: Handler) -> None:
    """Raises RegistrationError where the handler never takes what the schedule gives it.

    What validators of the user's say is left to the runs: they may go by the time, or by what is
    not there yet.
    """
    parse = payload_parser(handler.type, handler.shapes()[0], None)
    try:
        parse(tick_of(schedule, datetime.now(UTC)).payload, "application/json")
    except InvalidPayload as error:
        if isinstance(error.__cause__, ValidationError) and not _of_another_shape(error.__cause__):
            return
        given = "a Tick" if schedule.payload is None else "its payload="
        raise RegistrationError(
            f"periodic {schedule.cron!r}, {handler.place}: {given} is not what the handler takes:"
            f" {error}; annotate its payload Tick, or give payload= as it is annotated"
        ) from None
    except Exception:  # noqa: BLE001 - user code
        return


def _of_another_shape(error: ValidationError) -> bool:
    kinds = [one["type"] for one in error.errors(include_context=False, include_input=False)]
    return any(kind in ("missing", "extra_forbidden") or kind.endswith("_type") for kind in kinds)


def _payload(payload: Any) -> bytes:
    if isinstance(payload, BaseModel):
        return payload.model_dump_json(by_alias=True).encode()
    return write_json(payload)
