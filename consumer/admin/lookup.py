"""The state of requests as far as Redis and the journal know."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from consumer.admin.journal import JournalContended, JournalUnreachable, connect
from consumer.admin.statuses import store_of
from consumer.config.settings import Settings
from consumer.errors import ConfigError
from feedback.contract.states import FINAL, REOPENABLE, State
from feedback.errors import StoreUnavailable
from feedback.operations.request_reads import get_statuses
from feedback.status.status import Status

JOURNAL_TIMEOUT = 10.0
"""Seconds for a statement, the locks that it waits for included: callers ask again and again."""
FOR_GOOD = FINAL - REOPENABLE
"""States that nobody changes."""


def look_up(
    settings: Settings, ids: Sequence[str], warn: Callable[[str], None] = lambda _: None
) -> list[Status | None]:
    """One status an id, None where neither knows it.

    Redis is a hint with a time to live, and may have missed what operators and later runs did, so
    the journal is asked for all that can still change, and its answer counts. `warn` hears of what
    does not answer where the other can do without it. Raises OncepoolError when nothing that is
    configured answers.
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
            warn(
                f"{str(error).rstrip('.')}; what only Redis knows (accepted, running, types with"
                ' effect="none") is not shown'
            )
    open_ids = may_change(ids, found)
    if open_ids and settings.database_url:
        try:
            stored = _from_journal(settings, open_ids)
        except (JournalUnreachable, JournalContended) as error:
            if not all((status := found.get(n)) is not None and status.settled for n in open_ids):
                raise
            warn(f"{error}; this is what Redis says, and it may have changed since")
        else:
            found |= {name: newer(found.get(name), row) for name, row in stored.items()}
    return [found.get(name) for name in ids]


def may_change(ids: Sequence[str], found: Mapping[str, Status | None]) -> list[str]:
    """Those of which Redis does not say for good what became of them: the journal is asked."""
    return [n for n in ids if (status := found.get(n)) is None or status.state not in FOR_GOOD]


def newer(told: Status | None, stored: Status) -> Status:
    """What counts of what Redis tells and the journal has: that, but for what no row says.

    A failure without a row is of a copy that came after the row. A doubt without one is of a run
    whose end could not be written: its row says what was before, or that it runs. Of a row that is
    open nobody knows since when it stands so, but which run it is about; nor has it a reason.
    """
    if told is None:
        return stored
    if stored.reason is None and _place(told) == _place(stored):
        stored = replace(stored, reason=told.reason)
    if told.at <= stored.at:
        return stored
    if told.state is State.IN_DOUBT:
        its_own = told.run == stored.run and stored.state is not State.WAITING
        unsaid = not told.journaled and (told.run > stored.run or its_own)
        return told if unsaid and stored.state not in FOR_GOOD else stored
    both_failed = told.state is stored.state is State.FAILED
    return told if both_failed and not told.has_row else stored


def _place(status: Status) -> tuple[str, State, str, int]:
    """Two that agree in it say the same of a request."""
    return status.type, status.state, status.code, status.run


def _from_redis(settings: Settings, ids: Sequence[str]) -> dict[str, Status | None]:
    store = store_of(settings)
    try:
        return dict(zip(ids, store.read(ids), strict=True))
    finally:
        store.close()


def _from_journal(settings: Settings, ids: Sequence[str]) -> dict[str, Status]:
    with connect(settings, within=JOURNAL_TIMEOUT) as connection:
        return get_statuses(connection, ids, schema=settings.database_schema)
