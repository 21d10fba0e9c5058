"""What the configured services tell of the whole: instances, limits, topics, the journal."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import redis

from consumer.admin.journal import connect
from consumer.admin.lag import group_lag
from consumer.admin.outbox import outbox_operator
from consumer.config.masking import mask_url
from consumer.config.settings import Settings
from consumer.errors import ConfigError
from feedback.contract.states import State
from feedback.errors import OncepoolError
from feedback.operations.statistics import Figures, figures, outcomes
from processing.cluster.instances import connect as connect_redis
from processing.cluster.instances import instances
from processing.cluster.limits import ClusterLimits, RedisLimitsStore

Row = dict[str, Any]


@dataclass(slots=True)
class Look:
    """One look. What could not be read is None, and `problems` says why: source -> reason."""

    instances: list[Row] | None = None
    limits: ClusterLimits | None = None
    topics: list[Row] | None = None
    requests: list[Row] | None = None
    """How requests ended."""
    postponed: list[Row] | None = None
    """What was written down to wait instead, each time that it was."""
    journal: Figures | None = None
    outbox: list[Row] | None = None
    """What is open in the producer's outbox."""
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def blind(self) -> bool:
        """Nothing answered."""
        parts = (self.instances, self.topics, self.journal, self.outbox)
        return all(part is None for part in parts)

    def summary(self) -> Row:
        """The whole in one row; None of what could not be read. Ages in seconds."""
        journal = self.journal
        types = None if journal is None else journal.types
        oldest = [r["oldest"] for r in types or () if r["oldest"] is not None]
        overdue = [r["overdue"] for r in types or () if r["overdue"] is not None]
        return {
            "instances": None if self.instances is None else len(self.instances),
            "workers": _sum(self.instances, "workers"),
            "workers_free": _sum(self.instances, "workers_free"),
            "in_process": _sum(self.instances, "running"),
            "in_hand": _sum(self.instances, "in_hand"),
            "lag": _sum(self.topics, "waiting"),
            "waiting": _sum(types, "waiting"),
            "due": _sum(types, "due"),
            "oldest": max(oldest, default=None),
            "overdue": max(overdue, default=None),
            "rate": _sum(types, "rate"),
            "done_hour": _sum(types, "done_hour"),
            "done_day": _sum(types, "done_day"),
            "dead": None if journal is None else journal.dead,
            "dead_messages": None if journal is None else journal.messages,
            "in_doubt": None if journal is None else journal.in_doubt,
            "lost_at_commit": _sum(types, "lost"),
            "read_again": _sum(self.instances, "read_again"),
        }


def look(
    settings: Settings,
    minutes: int,
    only: Collection[str] | None = None,
    *,
    within: float | None = None,
) -> Look:
    """Asks each configured service; outcomes are those of the last `minutes`.

    `only` these of instances, topics, requests and outbox; of a database each question `within`
    some seconds where given. Raises ConfigError where none of all is configured.
    """
    found = Look()
    sources: list[tuple[str, bool, Callable[[], None]]] = [
        ("instances", bool(settings.redis_url), lambda: _ask_redis(settings, found)),
        (
            "topics",
            bool(settings.kafka_bootstrap_servers and settings.kafka_topics),
            lambda: _ask_kafka(settings, found),
        ),
        (
            "requests",
            bool(settings.database_url),
            lambda: _ask_journal(settings, minutes, found, within),
        ),
        (
            "outbox",
            bool(settings.outbox_database_url),
            lambda: _ask_outbox(settings, found, within),
        ),
    ]
    if not any(configured for _, configured, _ in sources):
        raise ConfigError(
            "nothing to ask: set kafka_topics, database_url, redis_url or outbox_database_url"
        )
    for name, configured, ask in sources:
        if not configured or (only is not None and name not in only):
            continue
        try:
            ask()
        except (OncepoolError, redis.RedisError, OSError) as error:
            found.problems[name] = mask_url(str(error))
    return found


def _ask_redis(settings: Settings, found: Look) -> None:
    with connect_redis(settings.redis_url) as client:
        limits = RedisLimitsStore(client, settings.redis_prefix).read()
        rows = instances(client, settings.redis_prefix)
    now = datetime.now(UTC)
    found.limits = limits
    found.instances = [{**row, "age": _age(row, now)} for row in rows]
    if times := [row["limits_restored_at"] for row in rows if row.get("limits_restored_at")]:
        found.problems["limits"] = (
            f"were gone from Redis and put back by an instance at {max(times)}: look at them with"
            " `oncepool limits show`"
        )
    _note_missing(found, (topic for row in rows for topic in row.get("missing_topics") or ()))
    for row in rows:
        if (seconds := row.get("brokers_away_for")) is not None:
            found.problems[f"instance {row['id']}"] = (
                f"has heard from no Kafka broker for {seconds:.0f} s: it takes nothing new until"
                " one is back"
            )
        for place in row.get("without_start") or ():
            found.problems[f"partition {place}"] = (
                "is not read yet, as it has no leader or its committed offset could not be read:"
                " its requests wait, see to the brokers"
            )


def _ask_kafka(settings: Settings, found: Look) -> None:
    found.topics = [lag._asdict() for lag in group_lag(settings)]
    there = {row["topic"] for row in found.topics}
    _note_missing(found, (topic for topic in settings.kafka_topics if topic not in there))


def _note_missing(found: Look, topics: Iterable[str]) -> None:
    for topic in topics:
        found.problems[f"topic {topic}"] = (
            "does not exist, so nothing is consumed from it: run `oncepool topics create`, or"
            " correct kafka_topics"
        )


def _ask_journal(settings: Settings, minutes: int, found: Look, within: float | None) -> None:
    since = datetime.now(UTC) - timedelta(minutes=minutes)
    with connect(settings, within=within) as connection:
        requests = outcomes(connection, since, schema=settings.database_schema)
        found.journal = figures(connection, schema=settings.database_schema)
    found.requests = [row for row in requests if row["state"] != State.WAITING]
    found.postponed = [row for row in requests if row["state"] == State.WAITING]


def _ask_outbox(settings: Settings, found: Look, within: float | None) -> None:
    with outbox_operator(settings, within=within) as operator:
        found.outbox = operator.figures()


def _age(row: Row, now: datetime) -> float:
    """Seconds since an instance was heard of; 0 where its clock is ahead of this one."""
    return round(max(0.0, (now - datetime.fromisoformat(row["at"])).total_seconds()), 1)


def _sum(rows: list[Row] | None, column: str) -> Any:
    return None if rows is None else sum(row.get(column) or 0 for row in rows)
