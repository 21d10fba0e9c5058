"""Where each sender's requests go, from the settings."""

from __future__ import annotations

from consumer.config.setting_types import OutboxRoute
from consumer.config.settings import Settings
from consumer.errors import ConfigError
from feedback.outbox.names import DEFAULT_SENDER
from feedback.outbox.relay import Route


def routes_of(settings: Settings) -> dict[str, Route]:
    """By sender: those of outbox_routes, and `default` where there is a topic to send to.

    Raises ConfigError for a sender without a topic or brokers, and where there is none at all.
    """
    found: dict[str, Route] = {}
    if settings.send_topic and DEFAULT_SENDER not in settings.outbox_routes:
        settings.require("kafka_bootstrap_servers")
        found[DEFAULT_SENDER] = _route(settings, OutboxRoute(topic=settings.send_topic))
    for sender, own in settings.outbox_routes.items():
        if not (own.topic or settings.send_topic):
            raise ConfigError(
                f"outbox_routes: {sender} has no topic: give it one, or set kafka_topic"
            )
        if not own.bootstrap_servers:
            settings.require("kafka_bootstrap_servers")
        found[sender] = _route(settings, own)
    if not found:
        settings.require("kafka_topic")
    return found


def _route(settings: Settings, own: OutboxRoute) -> Route:
    brokers = own.bootstrap_servers or settings.kafka_bootstrap_servers
    properties = {**settings.kafka_properties, **own.properties, "bootstrap.servers": brokers}
    return Route(
        own.topic or settings.send_topic,
        properties,
        own.redis_url or settings.redis_url or None,
        own.redis_prefix or settings.redis_prefix,
        own.results_topic or settings.kafka_results_topic or None,
    )
