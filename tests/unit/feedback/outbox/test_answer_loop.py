"""When the rows that wait for answers are looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from feedback.errors import StoreUnavailable
from feedback.outbox.relay import loop
from feedback.outbox.relay.loop import AnswerLoop
from feedback.outbox.relay.settling import AnswersBusy, Settling
from feedback.postgres import Connection
from feedback.status.memory_store import MemoryStatusStore

AWAY = 600.0
NOTHING = cast("Connection", None)


class Clock:
    """Goes on where somebody waits: stands for the loop's event, too."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return False

    def is_set(self) -> bool:
        return False


class Pages:
    """Rows of one page, which fails between two times."""

    schema = "oncepool_outbox"
    ended = again = 0
    worked = 0.01
    waits = False
    """For its turn, before each page."""

    def __init__(self, clock: Clock, fail: Callable[[Clock], Exception]) -> None:
        self._clock = clock
        self._fail = fail
        self.fails = (0.0, 0.0)
        self.looked: list[tuple[float, bool]] = []
        """When, and whether at all of them."""

    def page(self, _: Connection, young: float | None) -> bool:
        first, end = self.fails
        if first <= self._clock.now < end:
            raise self._fail(self._clock)
        self._clock.wait(3.0 if self.waits else self.worked)
        self.looked.append((self._clock.now, young is None))
        return False


def store_away(_: Clock) -> Exception:
    return StoreUnavailable("away")


def others_at_it(clock: Clock) -> Exception:
    clock.wait(5.0)
    return AnswersBusy()


@pytest.mark.parametrize("fail", [store_away, others_at_it])
@pytest.mark.parametrize("whole", [True, False])
def test_what_a_pass_has_waited_for_makes_no_rest_longer(
    fail: Callable[[Clock], Exception], whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After ten minutes without Redis nothing was looked at for half an hour."""
    clock = Clock()
    monkeypatch.setattr(loop, "time", clock)
    pages = Pages(clock, fail)
    reader = AnswerLoop("", "default", MemoryStatusStore(), cast("Settling", pages))
    monkeypatch.setattr(reader, "_stop", clock)
    if not whole:
        reader._step(NOTHING)
    pages.looked.clear()
    back = clock.now + AWAY
    pages.fails = (clock.now, back)
    while clock.now < back + 60:
        reader._step(NOTHING)
    times = [at for at, _ in pages.looked]
    wholes = [at for at, all_ in pages.looked if all_]
    assert times[0] < back + 40  # as long as a store that is away is not asked
    for seen, most in ((times, 1.0), (wholes, 6.0)):
        assert max(b - a for a, b in zip(seen, [*seen[1:], clock.now], strict=True)) < most


def test_what_a_page_has_waited_for_its_turn_makes_no_rest_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(loop, "time", clock)
    pages = Pages(clock, store_away)
    pages.waits = True
    reader = AnswerLoop("", "default", MemoryStatusStore(), cast("Settling", pages))
    monkeypatch.setattr(reader, "_stop", clock)
    end = clock.now + 60
    while clock.now < end:
        reader._step(NOTHING)
    wholes = [at for at, all_ in pages.looked if all_]
    assert max(b - a for a, b in zip(wholes, [*wholes[1:], clock.now], strict=True)) < 12
