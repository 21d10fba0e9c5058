"""A result record, as it is read."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, Self

from feedback.contract.headers import check_name
from feedback.contract.payloads import parse_json, refuse_deep
from feedback.contract.states import State
from feedback.errors import Malformed

log = logging.getLogger("oncepool.kafka")


@dataclass(frozen=True, slots=True)
class Result:
    """How a request ended, as a result record says. `at` (UTC) is when that was written."""

    id: str
    type: str
    state: State
    code: str
    result: Any
    at: datetime
    result_omitted: bool = False
    """There is a result, and it was too large for Kafka: the journal has it."""

    @classmethod
    def decode(cls, value: bytes | None) -> Result:
        """Reads a record's value. Raises ValueError for anything else."""
        try:
            fields = parse_json(value or b"")
            refuse_deep(value or b"", fields)
            return cls(
                id=check_name("id", fields["id"]),
                type=check_name("type", fields["type"]),
                state=State(fields["state"]),
                code=_code(fields["code"]),
                result=fields.get("result"),
                at=_time(fields["at"]),
                result_omitted=fields.get("result_omitted", False) is True,
            )
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, Malformed) as error:
            raise ValueError(f"not a result record: {error!r}") from None


def _code(given: Any) -> str:
    """As handlers may make them. PostgreSQL has no text for a zero character."""
    if not isinstance(given, str) or "\0" in given:
        raise ValueError(f"code is {given!r}")
    return given


def _time(given: Any) -> datetime:
    at = datetime.fromisoformat(given)
    if at.tzinfo is None:
        raise ValueError(f"at is {given}, without a time zone")
    return at.astimezone(UTC)


class ReadMessage(NamedTuple):
    """A message that was read, and what it says; None where it is no result record."""

    message: Any
    result: Result | None

    @classmethod
    def of(cls, message: Any) -> Self:
        """Reads it; what is no result record is logged."""
        try:
            return cls(message, Result.decode(message.value()))
        except ValueError as problem:
            place = f"{message.topic()}/{message.partition()}/{message.offset()}"
            log.warning("message %s left out: %s", place, problem)
            return cls(message, None)
