"""Whatever happens to workers, database and group: order, suspicion and every request are kept."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.model import handover_world, service_world
from tests.model.pool_world import World

# Many steps of pure code, three times slower where its branches are measured.
pytestmark = pytest.mark.no_cover

SEEDS = 30
"""Schedules run here; `scripts/simulate` runs as many as wanted."""
SERVICES = 40
HANDOVERS = 30


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_schedules(first: int) -> None:
    for seed in range(first, first + 10):
        world = World(seed)
        try:
            world.run()
        except AssertionError as error:
            raise AssertionError(f"scripts/simulate --world pool --seed {seed}: {error}") from error


def test_services() -> None:
    happened: Counter[str] = Counter()
    for seed in range(SERVICES):
        world = service_world.World(seed)
        try:
            world.run_through()
        except AssertionError as error:
            raise AssertionError(
                f"scripts/simulate --world service --seed {seed}: {error}"
            ) from error
        happened += world.happened
    # The schedules would show nothing if they did not get there.
    whats = ("retries", "claims", "parked", "refused", "sent again", "commits too late")
    redis = ("a status is lost", "Redis is flushed", "Redis is restored from before")
    references = ("superseded", "came too late for its reference")
    for what in (*whats, *redis, *references, "a worker renews leases"):
        assert happened[what] > 5, what


def test_handovers() -> None:
    """Nothing is sent again, and all comes to its end."""
    happened: Counter[str] = Counter()
    # 775: a gap that others had begun is refused, and comes back with the mark that stood before.
    for seed in (*range(HANDOVERS), 775):
        world = handover_world.World(seed)
        try:
            world.run_through()
        except AssertionError as error:
            raise AssertionError(
                f"scripts/simulate --world handover --seed {seed}: {error}"
            ) from error
        happened += world.happened
    for what in ("given up", "last words", "read again", "entered as not begun", "refused"):
        assert happened[what] > 5, what
