"""Whatever happens to workers and database, the pool keeps order, suspicion and every record."""

from __future__ import annotations

import pytest

from tests.model.pool_world import World

# Many steps of pure code, three times slower where its branches are measured.
pytestmark = pytest.mark.no_cover

SEEDS = 40
"""Schedules run here; `scripts/simulate` runs as many as wanted."""


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_schedules(first: int) -> None:
    for seed in range(first, first + 10):
        world = World(seed)
        try:
            world.run()
        except AssertionError as error:
            raise AssertionError(f"scripts/simulate --seed {seed}: {error}") from error
