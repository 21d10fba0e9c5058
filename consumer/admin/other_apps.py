"""What live instances under the same Redis prefix say that should not be beside this one."""

from __future__ import annotations

from collections.abc import Collection

import redis

from consumer.config.settings import Settings
from processing.cluster.instances import connect, instances
from processing.cluster.other_groups import other_groups
from processing.cluster.other_journals import other_journals
from processing.cluster.quota import Peer, peer


def groups_beside(settings: Settings, types: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Other group -> those of `types` that it handles."""
    return other_groups(settings.kafka_group, types, _live(settings))


def journals_beside(settings: Settings, journal: str) -> dict[str, str]:
    """Instance of the same group -> the journal that it uses, where that is another one."""
    return other_journals(settings.kafka_group, journal, _live(settings))


def _live(settings: Settings) -> list[Peer]:
    """From the registrations in Redis; none where that is not set, or does not answer."""
    if not settings.redis_url:
        return []
    try:
        with connect(settings.redis_url) as client:
            return [peer(facts) for facts in instances(client, settings.redis_prefix)]
    except (redis.RedisError, OSError):
        return []  # the look at Redis tells that
