"""What the instances say that they run right now, from their registrations in Redis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis

from consumer.admin.redis_errors import RedisProblem
from consumer.config.settings import Settings
from feedback.errors import StoreUnavailable
from processing.cluster.instances import connect, instances


def running_now(settings: Settings) -> list[dict[str, Any]]:
    """A row for each request: request_id, type, record, instance, worker, chunk, since.

    Oldest first; older versions tell no chunk. As the instances registered it last, some seconds
    ago at most. Empty where redis_url is not set. Raises StoreUnavailable.
    """
    if not settings.redis_url:
        return []
    with unanswered(), connect(settings.redis_url) as client:
        live = instances(client, settings.redis_prefix)
    rows = [
        {**running, "instance": facts["id"]}
        for facts in live
        for running in facts.get("running_requests") or ()
    ]
    return sorted(rows, key=lambda row: str(row["since"]))


@contextmanager
def unanswered() -> Iterator[None]:
    """Turns errors of Redis into StoreUnavailable."""
    try:
        yield
    except (redis.RedisError, OSError) as error:
        raise StoreUnavailable(
            f"what runs right now is in Redis, which {RedisProblem.of(error)}"
        ) from None
