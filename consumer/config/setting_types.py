"""Types of settings: how their text is read, and what a value must be."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_settings import NoDecode

from feedback.broker_addresses import check_servers
from feedback.contract.headers import LONGEST_DELAY
from feedback.contract.topics import check_topic

SENDER = re.compile(r"[a-zA-Z0-9._-]{1,100}")


def _split(value: object) -> object:
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def _each_once(values: list[str]) -> list[str]:
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"{value} is named twice")
    return values


def _topic_name(value: str) -> str:
    if value:
        check_topic(value)
    return value


def _sender_name(value: str) -> str:
    if not SENDER.fullmatch(value):
        raise ValueError(
            f"{value!r} is no sender's name: 1 to 100 letters, digits, dots, hyphens, underscores"
        )
    return value


def _servers(value: str) -> str:
    if value:
        check_servers(value)
    return value


def dotted(value: Any) -> Any:
    """A table whose nested tables became dotted names: TOML nests an unquoted client.id."""
    if not isinstance(value, dict):
        return value
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        if isinstance(inner, dict):
            flat |= {f"{key}.{rest}": leaf for rest, leaf in dotted(inner).items()}
        else:
            flat[key] = inner
    return flat


def _from_json(example: str) -> BeforeValidator:
    def read(value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value)
        except ValueError:
            raise ValueError(f"this is not JSON; write {example}") from None

    return BeforeValidator(read)


def _plain_values(value: object) -> object:
    if isinstance(value, dict):
        for name, inner in value.items():
            if not isinstance(inner, str | bool | int | float):
                # Not a TypeError, which pydantic lets through.
                raise ValueError(f"{name} has to be text, a number or a boolean")  # noqa: TRY004
    return value


Topic = Annotated[str, AfterValidator(_topic_name)]
"""Empty where there is none."""
Topics = Annotated[list[Topic], NoDecode, BeforeValidator(_split), AfterValidator(_each_once)]
Sender = Annotated[str, AfterValidator(_sender_name)]
Senders = Annotated[list[Sender], NoDecode, BeforeValidator(_split), AfterValidator(_each_once)]
Types = Annotated[list[str], NoDecode, BeforeValidator(_split), AfterValidator(_each_once)]
_LONGEST: Final = LONGEST_DELAY.total_seconds()
Seconds = Annotated[float, Field(gt=0, le=_LONGEST, allow_inf_nan=False)]
Properties = Annotated[
    dict[str, str | bool | int | float],
    NoDecode,
    BeforeValidator(_plain_values),
    BeforeValidator(dotted),
    _from_json('{"client.id": "shop"}'),
]
Servers = Annotated[str, AfterValidator(_servers)]
SecondsOrZero = Annotated[float, Field(ge=0, le=_LONGEST, allow_inf_nan=False)]


class OutboxRoute(BaseModel):
    """Where the requests of one sender of an outbox go."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    topic: Topic = ""
    """Without it that of clients."""
    bootstrap_servers: Servers = ""
    """Without them kafka_bootstrap_servers."""
    redis_url: str = ""
    """Of the statuses of its consumers; without it redis_url."""
    redis_prefix: str = ""
    """Without it redis_prefix."""
    results_topic: Topic = ""
    """Of its result records, on its brokers; without it kafka_results_topic."""
    properties: Properties = {}
    """Beside kafka_properties, which they overrule."""


SecondsByType = Annotated[
    dict[str, Seconds], NoDecode, BeforeValidator(dotted), _from_json('{"payment.create": 300}')
]
Routes = Annotated[
    dict[Sender, OutboxRoute], NoDecode, _from_json('{"billing": {"topic": "billing"}}')
]
