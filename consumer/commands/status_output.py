"""How commands show statuses, and the client that they use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from consumer.admin.kafka_admin import require_topic
from consumer.commands.listing import print_rows
from consumer.commands.output import as_cell, print_json, print_table
from consumer.config.settings import Settings
from consumer.intake.kafka_properties import producer_properties
from feedback.client.client import Client
from feedback.contract.states import State
from feedback.status.status import Status

UNKNOWN = "unknown"
"""State of a request of which nothing is known."""
COLUMNS = ("id", "type", "state", "code", "attempt", "at", "retry_at", "superseded_by", "result",
           "error", "reason")  # fmt: skip


def client_from(settings: Settings) -> Client:
    """A client for the configured services.

    Raises ConfigError where one is missing, TopicMissing, KafkaUnreachable.
    """
    settings.require("kafka_bootstrap_servers", "redis_url")
    if not settings.send_topic:
        settings.require("kafka_topics")
    require_topic(settings, settings.send_topic)
    properties = producer_properties(settings)
    return Client(properties, settings.redis_url, settings.send_topic, prefix=settings.redis_prefix)


def as_object(status: Status) -> dict[str, Any]:
    """A status under the names of the contract, without what it doesn't have."""
    fields = {
        "v": status.v,
        "id": status.id,
        "type": status.type,
        "state": status.state,
        "code": status.code,
        "attempt": status.attempt,
        "run": status.run,
        "at": status.at,
        "fingerprint": status.fingerprint,
        "result": status.result,
        "error": status.error,
        "reason": status.reason,
        "retry_at": status.retry_at,
        "superseded_by": status.superseded_by,
        "journaled": None if status.journaled else False,
    }
    return {name: value for name, value in fields.items() if value is not None}


def unknown(id: str) -> dict[str, Any]:
    """What stands for a request that nothing is known of."""
    return {"id": id, "state": UNKNOWN}


def print_statuses(objects: Sequence[dict[str, Any]], *, json: bool) -> None:
    """One line, or one object of an array, for each request."""
    if json:
        print_json(objects)
        return
    columns = [c for c in COLUMNS if any(c in status for status in objects)]
    print_rows(columns, ([as_cell(status.get(c)) for c in columns] for status in objects))


def print_summary(objects: Sequence[dict[str, Any]]) -> None:
    """How many requests stand how."""
    counts = Counter((s["state"], s.get("code", "")) for s in objects)
    print_table(("state", "code", "requests"), ((*key, n) for key, n in sorted(counts.items())))


def all_done(objects: Sequence[dict[str, Any]]) -> bool:
    """Whether every request is done."""
    return all(status["state"] == State.DONE for status in objects)
