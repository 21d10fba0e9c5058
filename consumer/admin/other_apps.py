"""Live instances of another group that handle the same types under the same Redis prefix."""

from __future__ import annotations

from collections.abc import Collection

import redis

from consumer.config.settings import Settings
from processing.cluster.instances import connect, instances
from processing.cluster.other_groups import other_groups
from processing.cluster.quota import peer


def groups_beside(settings: Settings, types: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Other group -> those of `types` that it handles, from the registrations in Redis.

    Empty where redis_url is not set, or Redis does not answer.
    """
    if not settings.redis_url:
        return {}
    try:
        with connect(settings.redis_url) as client:
            live = instances(client, settings.redis_prefix)
    except (redis.RedisError, OSError):
        return {}  # the look at Redis tells that
    return other_groups(settings.kafka_group, types, map(peer, live))
