"""When a missing worker is started again, and what is said while none is."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from processing.ipc.progress import Running
from processing.pool.actions import Send, Signal, Spawn, StartsPaused
from processing.pool.pool import Pool
from processing.pool.restart_backoff import BLAMED_CAP, RestartBackoff
from processing.settings import PoolSettings
from tests.support.lanes import record

BACKEND = (4711, "2026-01-01 00:00:00+00")
STEP = 0.25
TIMED_OUT = 10
"""Hard time-outs before anything else happens."""


class Shop:
    """A pool of one worker, and a clock."""

    def __init__(self, workers: int = 1) -> None:
        self.pool = Pool(PoolSettings(workers=workers, instance="i"))
        self.now = 1.0
        self.actions: list[Any] = []
        """All that the pool has wanted."""

    def plan(self) -> list[Any]:
        planned = self.pool.plan(self.now)
        self.actions += planned
        for action in planned:
            if isinstance(action, Spawn):
                self.pool.crew.connected(action.worker, BACKEND)
                self.pool.ready(action.worker)
        return planned

    def until_started(self) -> float:
        """Seconds until a worker is started."""
        began = self.now
        while not any(isinstance(action, Spawn) for action in self.plan()):
            self.now += STEP
        return self.now - began

    def hangs(self, first: int, records: int) -> None:
        """So many records are run in one go, which does not end until its worker is killed."""
        pool = self.pool
        pool.costs.observe("t", 1, 0.001)
        pool.submit([record(first + n, b"%d" % (first + n), "t") for n in range(records)])
        [sent] = [action for action in self.plan() if isinstance(action, Send)]
        (chunk,) = pool.workers[sent.worker].chunks
        assert len(chunk.records) == records
        index = 0 if records == 1 else None  # a batch handler runs all of them
        running = Running(chunk.number, index, self.now, self.now)
        signals = []
        while signal.SIGKILL not in signals:
            self.now += 1.0
            told = pool.tick({sent.worker: running}, self.now)
            signals += [action.number for action in told if isinstance(action, Signal)]
        pool.died(sent.worker, "signal SIGKILL", running, self.now)
        assert pool.take_suspects()


@pytest.mark.parametrize("records", [1, 3], ids=["alone", "a batch"])
def test_hard_timeouts_do_not_have_the_next_death_of_another_cause_cost_a_pause(
    records: int,
) -> None:
    shop = Shop()
    shop.until_started()
    for n in range(TIMED_OUT):
        shop.hangs(n * records, records)
        assert shop.until_started() <= BLAMED_CAP
        shop.now += 10.0
    (idle,) = shop.pool.workers
    shop.pool.died(idle, "signal SIGKILL", None, shop.now)
    assert shop.until_started() == 0


def test_a_start_that_fails_after_hard_timeouts_is_tried_again_at_once() -> None:
    respawn = RestartBackoff("died")
    respawn.ready()
    for n in range(TIMED_OUT):
        respawn.died(10.0 * n, blamed=True)
    respawn.failed(10.0 * TIMED_OUT)
    assert respawn.may(10.0 * TIMED_OUT)


def test_a_death_that_a_request_is_to_blame_for_does_not_end_the_pause_after_others() -> None:
    respawn = RestartBackoff("died")
    for _ in range(9):
        respawn.died(1.0)
    assert not respawn.may(16.9)
    respawn.died(2.0, blamed=True)
    assert not respawn.may(16.9)
    assert respawn.may(17.0)


def test_it_is_said_once_for_how_long_no_worker_is_started_and_after_how_many_deaths() -> None:
    shop = Shop(workers=2)
    shop.until_started()
    waits = []
    for _ in range(7):
        shop.pool.died(min(shop.pool.workers), "signal SIGKILL", None, shop.now)
        waits.append(shop.until_started())
    said = [action for action in shop.actions if isinstance(action, StartsPaused)]
    assert waits == [0, 0, 0, 0.5, 1.0, 2.0, 4.0]
    assert said == [StartsPaused(2.0, 6, ready=1), StartsPaused(4.0, 7, ready=1)]
