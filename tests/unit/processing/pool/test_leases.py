"""Who is asked to renew leases, and when."""

from __future__ import annotations

from typing import Any

import pytest

from feedback.contract.record import NOWHERE, Record
from processing.ipc.frames import RenewClaims, RenewLeases
from processing.pool.actions import Send, Spawn, Tell
from processing.pool.leases import ANSWERED_IN, RENEW_EVERY
from processing.pool.pool import Pool
from processing.settings import PoolSettings


def due(name: str) -> Record:
    headers: Any = [("ce_id", name.encode()), ("ce_type", b"quick")]
    return ("topic", NOWHERE, NOWHERE, 0, None, b"{}", headers, "quick", 1)


def fresh(offset: int) -> Record:
    return ("topic", 0, offset, 0, None, b"{}", [], "quick", None)


def to_workers(actions: list[Any]) -> dict[int, RenewLeases]:
    return {
        a.worker: a.frame
        for a in actions
        if isinstance(a, Send) and isinstance(a.frame, RenewLeases)
    }


@pytest.fixture
def pool() -> Pool:
    """Two workers, with a row and a message."""
    pool = Pool(PoolSettings(workers=2, instance="i", max_due=100))
    for action in pool.plan(0.0):
        assert isinstance(action, Spawn)
        pool.crew.connected(action.worker, (4711 + action.worker, "2026-01-01 00:00:00+00"))
        pool.ready(action.worker)
    pool.ask(0.0)
    pool.claimed(1, [(due("a"), None)], 0.0)
    pool.submit([fresh(1)])
    pool.plan(0.0)
    return pool


def asked(pool: Pool, now: float) -> None:
    told = [a.frame for a in pool.ask(now) if isinstance(a, Tell)]
    assert [f for f in told if isinstance(f, RenewClaims)], "the maintenance process is asked"


def test_workers_are_asked_where_the_maintenance_process_says_nothing(pool: Pool) -> None:
    asked(pool, RENEW_EVERY)
    assert to_workers(pool.ask(RENEW_EVERY + ANSWERED_IN - 0.1)) == {}
    told = to_workers(pool.ask(RENEW_EVERY + ANSWERED_IN))
    tokens = [pool.token(chunk) for chunk in pool.crew.chunks]
    assert told == dict.fromkeys((0, 1), RenewLeases([("a", 1)], tokens))
    assert to_workers(pool.ask(RENEW_EVERY + ANSWERED_IN + 1)) == {}, "once each time"
    asked(pool, 2 * RENEW_EVERY)
    assert to_workers(pool.ask(2 * RENEW_EVERY + ANSWERED_IN)).keys() == {0, 1}


def test_workers_are_not_asked_where_it_answers(pool: Pool) -> None:
    asked(pool, RENEW_EVERY)
    pool.queue.leases_renewed()
    assert to_workers(pool.ask(RENEW_EVERY + ANSWERED_IN)) == {}


def test_workers_without_a_session_are_not_asked(pool: Pool) -> None:
    pool.database(up=False, turned_away=True)
    pool.workers[1].cut_off = True
    asked(pool, RENEW_EVERY)
    assert to_workers(pool.ask(RENEW_EVERY + ANSWERED_IN)).keys() == {0}
    pool.database(up=False)
    asked(pool, 2 * RENEW_EVERY)
    assert to_workers(pool.ask(2 * RENEW_EVERY + ANSWERED_IN)) == {}, "it is away for all"
