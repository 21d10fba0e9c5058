from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from consumer.service.shutdown import Phase, Shutdown

R, D, F, T, K = (
    Phase.RUNNING, Phase.DRAINING, Phase.REFUSING, Phase.TERMINATING, Phase.KILLING
)  # fmt: skip


def test_one_signal_drains_until_ninety_percent_and_kills_at_the_end() -> None:
    shutdown = Shutdown(30)
    assert shutdown.phase(1000) is R
    assert shutdown.end is None
    assert shutdown.signal(1000) is D
    seen = [shutdown.phase(t) for t in (1000, 1026.9, 1027, 1029.9, 1030, 2000)]
    assert seen == [D, D, T, T, K, K]
    assert shutdown.end == 1030


def test_each_further_signal_is_the_next_phase() -> None:
    shutdown = Shutdown(30)
    assert [shutdown.signal(t) for t in (0, 1, 2, 3, 4)] == [D, F, T, K, K]
    assert shutdown.end == 3


def test_a_second_signal_brings_the_later_phases_closer() -> None:
    shutdown = Shutdown(30)
    shutdown.signal(0)
    shutdown.signal(5)
    assert [shutdown.phase(t) for t in (5, 7.9, 8, 10.9, 11)] == [F, F, T, T, K]


def test_a_late_signal_never_makes_it_longer() -> None:
    shutdown = Shutdown(30)
    shutdown.signal(0)
    shutdown.signal(26.9)
    assert shutdown.phase(27) is T
    assert shutdown.end == 30


def test_the_gap_between_sigterm_and_sigkill_is_a_tenth_of_the_grace() -> None:
    shutdown = Shutdown(30)
    for t in (0, 1, 2):
        shutdown.signal(t)
    assert shutdown.end == 5


@given(st.lists(st.floats(0, 50), min_size=1, max_size=6).map(sorted))
def test_phases_only_go_forward(times: list[float]) -> None:
    shutdown, last = Shutdown(30), Phase.RUNNING
    for time in times:
        assert shutdown.phase(time) >= last
        last = shutdown.signal(time)
    assert shutdown.phase(times[0] + 30.01) is Phase.KILLING
