"""What a client reads from the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from difflib import get_close_matches
from numbers import Real
from typing import Any, Final

from feedback.contract.topics import check_topic
from feedback.errors import ConfigurationError
from feedback.status.opening import open_store
from feedback.status.store import StatusStore

SERVERS: Final = "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS"
PROPERTIES: Final = "ONCEPOOL_KAFKA_PROPERTIES"
TOPICS: Final = "ONCEPOOL_KAFKA_TOPICS"
TOPIC: Final = "ONCEPOOL_KAFKA_TOPIC"
REDIS: Final = "ONCEPOOL_REDIS_URL"
PREFIX: Final = "ONCEPOOL_REDIS_PREFIX"
RESULTS: Final = "ONCEPOOL_KAFKA_RESULTS_TOPIC"
OWN: Final = (SERVERS, PROPERTIES, TOPICS, TOPIC, REDIS, PREFIX, RESULTS)
ARGUMENTS: Final = {
    "kafka": (SERVERS, PROPERTIES),
    "topic": (TOPIC, TOPICS),
    "redis": (REDIS,),
    "prefix": (PREFIX,),
    "results_topic": (RESULTS,),
}
"""Those that stand for each argument of a client."""
CLOSE: Final = 0.9
"""How much of a name is as in another one that it is taken for; no two settings are so close."""
BROKERS: Final = ("bootstrap.servers", "metadata.broker.list")
"""The two names of what librdkafka asks first."""
OF_CONSUMERS: Final = frozenset({
    "group.id", "group.protocol", "partition.assignment.strategy", "session.timeout.ms",
    "max.poll.interval.ms", "auto.offset.reset",
})  # fmt: skip
"""Properties that stand for settings of whoever consumes."""


def settings_from(environ: Mapping[str, str] | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments for a Client, without those that are `given` already.

    Raises ConfigurationError, which names everything that is missing, or a misspelt name.
    """
    values = os.environ if environ is None else environ
    _refuse_misspelt(values, given)
    text = values.get(PROPERTIES, "").strip()
    properties = _properties(text) if text and "kafka" not in given else {}
    named = next((str(properties[name]) for name in BROKERS if name in properties), "")
    topics = [topic.strip() for topic in values.get(TOPICS, "").split(",") if topic.strip()]
    found = {
        "kafka": values.get(SERVERS, "").strip() or named,
        "redis": values.get(REDIS, "").strip(),
        "topic": values.get(TOPIC, "").strip() or (topics[0] if topics else ""),
    }
    settings: dict[str, Any] = {name: text for name, text in found.items() if name not in given}
    names = {"kafka": SERVERS, "redis": REDIS, "topic": f"{TOPIC} (or {TOPICS})"}
    missing = [names[name] for name, text in settings.items() if not text]
    if missing:
        raise ConfigurationError(f"not set in the environment: {', '.join(missing)}")
    if properties:
        own = {name: v for name, v in properties.items() if name not in {*BROKERS, *OF_CONSUMERS}}
        settings["kafka"] = own | {"bootstrap.servers": settings["kafka"]}
    for name, variable in (("prefix", PREFIX), ("results_topic", RESULTS)):
        text = values.get(variable, "").strip()
        if text and name not in given:
            settings[name] = text
    return settings


def _refuse_misspelt(values: Mapping[str, str], given: Mapping[str, Any]) -> None:
    """A default would be in force without a word.

    Other names are none of a client's: of an environment it may share with a consumer or a gateway.
    So are those near what is set or given besides, as a second topic.
    """
    known = {name for name in OWN if values.get(name)}
    if known & {TOPIC, TOPICS}:
        known |= {TOPIC, TOPICS}
    known.update(name for argument in given for name in ARGUMENTS.get(argument, ()))
    for name in values:
        if name.startswith("ONCEPOOL_") and name not in OWN and values[name]:
            near = get_close_matches(name, OWN, 1, CLOSE)
            if near and near[0] not in known:
                raise ConfigurationError(
                    f"environment variable {name}: there is no such setting;"
                    f" did you mean {near[0]}?"
                )


def _properties(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        # Without the text: it may hold passwords.
        raise ConfigurationError(
            f'{PROPERTIES} is no JSON object; write {{"security.protocol": "SASL_SSL", ...}}'
        )
    return found


def given(name: str, value: str) -> str:
    """The value of a client's argument. Raises ConfigurationError where it is empty."""
    if not value:
        raise ConfigurationError(f"{name} is empty: the client needs one")
    return value


def topic_of(name: str, value: str) -> str:
    """The value of a client's argument. Raises ConfigurationError for what is no topic's name."""
    try:
        check_topic(given(name, value))
    except ValueError as error:
        raise ConfigurationError(f"{name}: {error}") from None
    return value


def answer_timeouts_of(value: Mapping[str, Any] | None) -> dict[str, float]:
    """The value of a client's argument. Raises ConfigurationError where a time-out can be none."""
    timeouts = dict(value or {})
    for kind, seconds in timeouts.items():
        if not (isinstance(seconds, Real) and float(seconds) > 0):
            raise ConfigurationError(
                f"answer_timeouts: of {kind!r} it is {seconds!r}; give a positive number of seconds"
            )
    return timeouts


def store_of(redis: str | StatusStore, prefix: str) -> StatusStore:
    """The store of a client's argument. Raises ConfigurationError for a URL that none takes."""
    if not isinstance(redis, str):
        return redis
    try:
        return open_store(redis, prefix)
    except ValueError as error:
        raise ConfigurationError(f"redis: {error}") from None
