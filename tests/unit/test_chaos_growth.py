"""The chaos suite's judgement of what processes hold."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.chaos.real.growth import growth
from tests.chaos.real.resources import Held, Sample

LOOKS = 60
"""Two seconds apart: a life of two minutes."""


def held(program: str, n: int, **more: float) -> Held:
    """Look number `n`; `more`: what it holds beside."""
    connections = {"kafka": int(3 + more.pop("connections", 0)), "database": 1}
    values = {"rss": 100.0, "uss": 80.0, "descriptors": 30, "threads": 5}
    for what, value in more.items():
        values[what] += value
    return Held(
        0, program, ["main", "maintenance", "worker"].index(program) + 1, 1,
        values["rss"], values["uss"], int(values["descriptors"]), int(values["threads"]),
        connections,
    )  # fmt: skip


def life(of_main: Callable[[int], dict[str, float]], looks: int = LOOKS) -> list[Sample]:
    return [
        Sample(n * 2.0, held=[held("main", n, **of_main(n)), held("maintenance", n),
                              held("worker", n)])
        for n in range(looks)
    ]  # fmt: skip


def quiet(n: int) -> dict[str, float]:
    """Outages and bursts come and go."""
    outage = 10 < n % 20 < 15
    return {"rss": n % 7, "connections": -3 * outage, "descriptors": -5 * outage}


def test_what_comes_and_goes_is_not_taken_for_growth_and_all_are_judged() -> None:
    result = growth(life(quiet), workers=1)
    assert result.found == []
    assert result.judged == {"main": 1, "maintenance": 1, "worker": 1}
    assert (result.too_short, result.looks) == (0, LOOKS)


@pytest.mark.parametrize(
    "what, each",
    [("rss", 1.5), ("uss", 1.5), ("descriptors", 0.4), ("threads", 0.25), ("connections", 0.15)],
)
def test_what_grows_in_one_process_is_seen(what: str, each: float) -> None:
    [found] = growth(life(lambda n: {what: n * each}), workers=1).found
    assert what in found
    assert "main" in found


def test_a_short_life_is_counted_and_not_judged() -> None:
    result = growth(life(quiet, looks=20), workers=1)
    assert (sum(result.judged.values()), result.too_short) == (0, 3)


def test_processes_that_are_too_many_and_children_that_nobody_waits_for_are_seen() -> None:
    samples = life(quiet)
    for sample in samples[40:]:
        sample.held.append(held("worker", 0)._replace(pid=9))
        sample.zombies = 1
    found = growth(samples, workers=1).found
    assert len(found) == 2
    assert growth(samples[:44], workers=1).found == []  # for a moment
