from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from processing.maintenance.database_health import FIRST_PAUSE, LONGEST_PAUSE, DatabaseHealth


def full_jitter() -> float:
    return 1.0


def test_the_first_try_is_due_at_once() -> None:
    assert DatabaseHealth().pause(0.0) == 0


def test_a_reached_database_is_tried_again_only_when_asked() -> None:
    probe = DatabaseHealth()
    probe.succeeded()

    assert probe.pause(1000.0) is None
    probe.ask()
    assert probe.pause(1000.0) == 0


def test_pauses_double_up_to_a_cap_and_start_anew_after_success() -> None:
    probe = DatabaseHealth(full_jitter)
    pauses = []
    now = 0.0
    for _ in range(8):
        probe.failed(now)
        pauses.append(probe.pause(now))
        now += pauses[-1]
        assert probe.pause(now) == 0
    assert pauses[:3] == [FIRST_PAUSE, FIRST_PAUSE * 2, FIRST_PAUSE * 4]
    assert max(pauses) == pauses[-1] == LONGEST_PAUSE

    probe.succeeded()
    probe.failed(now)
    assert probe.pause(now) == FIRST_PAUSE


def test_the_main_process_hears_only_news() -> None:
    probe = DatabaseHealth()

    assert probe.failed(0.0)
    assert not probe.failed(1.0)
    assert probe.succeeded()
    assert not probe.succeeded()


def test_the_main_process_gets_an_answer_each_time_it_asks() -> None:
    probe = DatabaseHealth()
    assert probe.succeeded()

    probe.ask()
    assert probe.succeeded()
    probe.ask()
    assert probe.failed(0.0)
    probe.ask()
    assert probe.failed(1.0)
    assert probe.succeeded()


def test_asking_does_not_shorten_the_pause_after_a_failure() -> None:
    probe = DatabaseHealth(full_jitter)
    probe.failed(0.0)

    probe.ask()

    assert probe.pause(0.0) == FIRST_PAUSE


@given(st.lists(st.sampled_from(["ask", "ok", "bad"]), max_size=40))
def test_whoever_asked_is_answered_by_the_next_outcome(events: list[str]) -> None:
    probe = DatabaseHealth()
    waiting = True
    for number, event in enumerate(events):
        if event == "ask":
            probe.ask()
            waiting = True
            continue
        told = probe.succeeded() if event == "ok" else probe.failed(float(number))
        assert told or not waiting
        assert probe.up == (event == "ok")
        assert (probe.pause(1e9) is None) == probe.up
        waiting = False


def test_it_is_news_where_a_server_that_let_nobody_in_does_not_answer_any_more() -> None:
    probe = DatabaseHealth()
    assert probe.failed(0.0, turned_away=True)
    assert not probe.failed(1.0, turned_away=True)
    assert probe.failed(2.0)
    assert probe.failed(3.0, turned_away=True)
