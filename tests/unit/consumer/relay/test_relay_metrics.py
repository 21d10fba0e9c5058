"""What a relay shows, and how often it looks at its outbox for it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from consumer.relay import metrics as relay_metrics
from consumer.relay.metrics import LOOK_EVERY, Depths, RelayMetrics
from feedback.errors import OncepoolError
from feedback.outbox.relay.loop import LoopState
from tests.support.metrics import DEPTHS, STATES, values


class Looks:
    """An outbox that can be away, and a clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.number = 0
        self.away = False
        self.later: list[Callable[[], None]] | None = None
        """What is to be done elsewhere, where it does not happen at once."""
        self.metrics = RelayMetrics(lambda: STATES, self.look, lambda: self.now, self.start)

    def start(self, work: Callable[[], None]) -> None:
        if self.later is None:
            work()
        else:
            self.later.append(work)

    def look(self) -> Depths:
        self.number += 1
        if self.away:
            raise OncepoolError("away")
        return DEPTHS


@pytest.fixture
def looks() -> Looks:
    return Looks()


def test_loops_and_rows_are_shown_by_sender(looks: Looks) -> None:
    shown = looks.metrics.families()
    assert values(shown, "oncepool_relay_sent_total") == {("default",): 12}
    assert values(shown, "oncepool_relay_ended_total") == {("default",): 13}
    assert values(shown, "oncepool_relay_resent_total") == {("default",): 2}
    assert values(shown, "oncepool_relay_up") == {
        ("default", "outbox"): 1, ("default", "brokers"): 0, ("default", "statuses"): 1,
        ("default", "results"): 0,
    }  # fmt: skip
    assert values(shown, "oncepool_outbox_rows") == {
        ("default", "unsent"): 3, ("default", "sent"): 2, ("default", "dead"): 1,
    }  # fmt: skip
    assert values(shown, "oncepool_outbox_oldest_seconds")["default", "unsent"] == 90.0


@pytest.mark.parametrize("away", [0, 1, 2])
def test_an_outbox_that_is_away_for_one_of_a_senders_loops_is_not_up(
    looks: Looks, away: int
) -> None:
    """Those that read answers may be all that is refused: what they would write."""
    states = [
        state._replace(database="permission denied" if n == away else None)
        for n, state in enumerate(STATES)
    ]
    states.append(LoopState("other", 0.0, None, None, 0, sender="other"))
    looks.metrics._states = lambda: states
    shown = values(looks.metrics.families(), "oncepool_relay_up")
    assert (shown["default", "outbox"], shown["other", "outbox"]) == (0, 1)


def test_many_scrapes_look_once(looks: Looks) -> None:
    for _ in range(5):
        looks.metrics.families()
    assert looks.number == 1
    looks.now += LOOK_EVERY
    looks.metrics.families()
    assert looks.number == 2


def test_a_look_that_could_not_be_started_is_made_at_a_later_scrape(looks: Looks) -> None:
    def refuse(_work: Callable[[], None]) -> None:
        raise RuntimeError("can't start new thread")

    looks.metrics = RelayMetrics(lambda: STATES, looks.look, lambda: looks.now, refuse)
    with pytest.raises(RuntimeError):
        looks.metrics.families()
    looks.metrics._start = looks.start
    looks.metrics.families()
    assert looks.number == 0
    looks.now += LOOK_EVERY
    looks.metrics.families()
    assert looks.number == 1


def test_an_outbox_that_is_away_is_not_asked_at_each_scrape_and_its_figures_age(
    looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def warning(event: str, *, error: str) -> None:
        told.append(error)

    monkeypatch.setattr(relay_metrics, "log", SimpleNamespace(warning=warning))
    looks.away = True
    shown = looks.metrics.families()
    assert not any("outbox" in one.metric.name for one in shown)
    looks.now += LOOK_EVERY - 1
    looks.metrics.families()
    assert looks.number == 1
    looks.now += 1
    looks.metrics.families()
    assert (looks.number, told) == (2, ["away"])  # once until it is read again
    looks.away = False
    looks.now += LOOK_EVERY
    looks.metrics.families()
    looks.away = True
    looks.now += LOOK_EVERY
    shown = looks.metrics.families()
    assert (looks.number, told) == (4, ["away", "away"])
    assert values(shown, "oncepool_outbox_rows")["default", "unsent"] == 3
    assert values(shown, "oncepool_outbox_read_age_seconds") == {(): LOOK_EVERY}


def test_no_scrape_waits_for_a_look_and_there_is_one_at_a_time(looks: Looks) -> None:
    looks.later = []
    for _ in range(3):
        assert not any("outbox" in one.metric.name for one in looks.metrics.families())
        looks.now += 2 * LOOK_EVERY
    (work,) = looks.later
    work()
    looks.later = []
    assert any("outbox" in one.metric.name for one in looks.metrics.families())
    assert looks.later == []  # the next one is due LOOK_EVERY after this one's end
    looks.now += LOOK_EVERY
    looks.metrics.families()
    assert len(looks.later) == 1


def test_a_look_that_fails_in_an_unknown_way_is_not_the_last(looks: Looks) -> None:
    def broken() -> Depths:
        raise RuntimeError("a bug")

    looks.metrics._look = broken
    with pytest.raises(RuntimeError):
        looks.metrics.families()
    looks.metrics._look = looks.look
    looks.now += LOOK_EVERY
    assert any("outbox" in one.metric.name for one in looks.metrics.families())
