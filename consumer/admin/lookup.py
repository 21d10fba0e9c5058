"""The state of requests as far as Redis and the journal know."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from consumer.admin.journal import connect
from consumer.config.settings import Settings
from consumer.errors import ConfigError
from feedback.errors import StoreUnavailable
from feedback.operations.request_reads import get_status
from feedback.status.opening import open_store
from feedback.status.status import Status

REDIS_TIMEOUT = 2.0


def look_up(
    settings: Settings,
    ids: Sequence[str],
    away: Callable[[StoreUnavailable], None] = lambda _: None,
) -> list[Status | None]:
    """One status an id, None where neither knows it.

    Redis is a hint with a time to live, so the journal is asked for whatever is not settled there,
    and its answer counts. `away` hears of a Redis that does not answer where the journal was asked
    instead. Raises OncepoolError when nothing that is configured answers.
    """
    if not settings.redis_url and not settings.database_url:
        raise ConfigError("set redis_url or database_url: statuses are in Redis and the journal")
    found: dict[str, Status | None] = {}
    if settings.redis_url:
        try:
            found = _from_redis(settings, ids)
        except StoreUnavailable as error:
            if not settings.database_url:
                raise
            away(error)
    schema = settings.database_schema
    open_ids = [n for n in ids if (status := found.get(n)) is None or not status.settled]
    if open_ids and settings.database_url:
        with connect(settings) as connection:
            for name in open_ids:
                if (status := get_status(connection, name, schema=schema)) is not None:
                    found[name] = status
    return [found.get(name) for name in ids]


def _from_redis(settings: Settings, ids: Sequence[str]) -> dict[str, Status | None]:
    store = open_store(settings.redis_url, settings.redis_prefix, timeout=REDIS_TIMEOUT)
    try:
        return dict(zip(ids, store.read(ids), strict=True))
    finally:
        store.close()
