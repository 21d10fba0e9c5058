"""librdkafka properties that a setting of ours stands for: whoever gives one has set that. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from consumer.config.setting_types import dotted
from consumer.errors import ConfigError

PROPERTIES: Final = "kafka_properties"


LONGEST: Final = 86_400_000
"""Milliseconds: librdkafka's own limit of these."""


class Twin(NamedTuple):
    """The setting that a property is."""

    setting: str
    milliseconds: bool = False
    """The property is in milliseconds, and the setting in seconds."""


TWINS: Final[Mapping[str, Twin]] = {
    "bootstrap.servers": Twin("kafka_bootstrap_servers"),
    "metadata.broker.list": Twin("kafka_bootstrap_servers"),
    "group.id": Twin("kafka_group"),
    "group.protocol": Twin("kafka_protocol"),
    "partition.assignment.strategy": Twin("kafka_assignor"),
    "session.timeout.ms": Twin("kafka_session_timeout", milliseconds=True),
    "max.poll.interval.ms": Twin("kafka_max_poll_interval", milliseconds=True),
    "auto.offset.reset": Twin("auto_offset_reset"),
}


def take_twins(values: dict[str, Any]) -> dict[str, str]:
    """Takes such properties out of `kafka_properties`, as the settings that they stand for.

    `values` are the settings that one source gives. Returns, of those taken, what to say behind
    their source. Raises ConfigError where a property is no number, or the same source says another
    thing of its setting.
    """
    given = _table(values.get(PROPERTIES))
    taken: dict[str, str] = {}
    for name, twin in TWINS.items():
        if name not in given:
            continue
        value = _value_of(name, twin, given[name])
        if twin.setting in values and not _same(values[twin.setting], value):
            raise ConfigError(
                f"{PROPERTIES}: {name} = {given[name]!r} is the setting {twin.setting}, which is"
                f" {values[twin.setting]!r}: keep one"
            )
        if twin.setting not in values:
            values[twin.setting] = value
            taken[twin.setting] = f", {PROPERTIES} {name}"
    if not TWINS.keys().isdisjoint(given):
        values[PROPERTIES] = {name: value for name, value in given.items() if name not in TWINS}
    return taken


def _table(given: Any) -> Mapping[str, Any]:
    """What was given, also as JSON; nothing where it is no table, as whoever checks it will say."""
    if isinstance(given, str):
        with suppress(ValueError):
            given = json.loads(given)
    found = dotted(given)
    return found if isinstance(found, Mapping) else {}


def _same(said: Any, value: Any) -> bool:
    """Whether a setting, as it was given, says the same."""
    if isinstance(value, float):
        with suppress(TypeError, ValueError):
            return float(said) == value
    return str(said) == str(value)


def _value_of(name: str, twin: Twin, value: Any) -> Any:
    if not twin.milliseconds:
        return value
    try:
        whole = int(value)
    except (TypeError, ValueError, OverflowError):
        whole = -1
    if isinstance(value, bool | float) or not 0 <= whole <= LONGEST:
        raise ConfigError(f"{PROPERTIES}: {name} = {value!r}: it wants whole milliseconds")
    return whole / 1000
