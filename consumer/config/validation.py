"""Settings that are right one by one and wrong together. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer.config.librdkafka import OF_CONSUMERS, OF_SETTINGS, refused

if TYPE_CHECKING:
    from consumer.config.settings import Settings

LEAST_MEMORY_LIMIT = 128 * 1024 * 1024
"""Below this a worker can hardly load its libraries and start its threads."""

LEAST_MAX_RSS = 64 * 1024 * 1024
"""Above this is what a worker holds without an app, or soon will."""


def wrong_combinations(s: Settings) -> list[str]:
    """What does not go together, each with the reason and the way out."""
    given = s.model_fields_set
    problems = [
        f"kafka_properties: {name} can't be set: {reason}"
        for name, reason in refused(s.kafka_properties, s.kafka_protocol, OF_SETTINGS).items()
    ]
    problems += [
        f"outbox_routes: {name} of {sender} can't be set: {reason}"
        for sender, route in s.outbox_routes.items()
        for name, reason in refused(route.properties, s.kafka_protocol, OF_CONSUMERS).items()
    ]
    if s.max_payload > s.max_in_hand_bytes:
        problems.append(
            f"max_payload ({s.max_payload}) is above max_in_hand_bytes ({s.max_in_hand_bytes}):"
            " one such request is beyond the bound; raise max_in_hand_bytes or lower max_payload"
        )
    if s.kafka_protocol == "consumer":
        problems += [
            f'{name} has no meaning with kafka_protocol = "consumer": {why};'
            ' remove it or set kafka_protocol = "classic"'
            for name, why in (
                ("kafka_assignor", "the broker assigns the partitions"),
                ("kafka_session_timeout", "the broker's group.consumer.session.timeout.ms rules"),
            )
            if name in given
        ]
    problems += _wrong_bounds_of_memory(s)
    if s.kafka_results_topic and s.kafka_results_topic in {*s.kafka_topics, s.send_topic}:
        problems.append(
            f"kafka_results_topic ({s.kafka_results_topic}) is a topic of requests too: records"
            " would come back as requests; give it a topic of its own"
        )
    if s.results_duplicates and not s.kafka_results_topic:
        problems.append(
            "results_duplicates asks for records that have no topic: set kafka_results_topic"
        )
    if s.sweep_interval > s.lease:
        problems.append(
            f"sweep_interval ({s.sweep_interval:g} s) is longer than lease ({s.lease:g} s): expired"
            " claims would stay unnoticed for longer than they lived; lower sweep_interval"
        )
    return problems


def _wrong_bounds_of_memory(s: Settings) -> list[str]:
    problems = []
    if s.worker_memory_limit and s.worker_memory_limit < LEAST_MEMORY_LIMIT:
        problems.append(
            f"worker_memory_limit ({s.worker_memory_limit}) is below {LEAST_MEMORY_LIMIT}: a worker"
            " could not even load its libraries; raise it, or use worker_max_rss"
        )
    if 0 < s.worker_max_rss < LEAST_MAX_RSS:
        problems.append(
            f"worker_max_rss ({s.worker_max_rss}) is below {LEAST_MAX_RSS}: a worker is above it"
            " once it has started, and would be replaced again and again; raise it (512MiB)"
        )
    if s.worker_memory_limit and s.worker_max_rss >= s.worker_memory_limit:
        problems.append(
            f"worker_max_rss ({s.worker_max_rss}) is not below worker_memory_limit"
            f" ({s.worker_memory_limit}): a worker would meet the limit before it is replaced;"
            " lower worker_max_rss"
        )
    return problems
