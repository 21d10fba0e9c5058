"""Signals that ask for the end, and what a further one does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from consumer.service.service import EXIT_CLEAN, EXIT_FATAL
from consumer.service.signal_pipe import Signals
from tests.support.scripted_service import ScriptedService, term


@pytest.fixture
def signals(terminal: None) -> Iterator[Signals]:
    signals = Signals()
    yield signals
    signals.restore()


def hang_up() -> None:
    signal.raise_signal(signal.SIGHUP)


def test_a_signal_is_readable_and_told_once(signals: Signals) -> None:
    assert signals.take() == []
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGINT)
    assert os.read(signals.fileno(), 1) == bytes([signal.SIGTERM])
    assert signals.take() == ["SIGTERM", "SIGINT"]
    assert signals.take() == []


@pytest.mark.parametrize("ignored", [False, True])
def test_a_closed_terminal_is_a_signal_unless_it_is_to_be_ignored(ignored: bool) -> None:
    before = "SIG_IGN" if ignored else "SIG_DFL"  # as `nohup` leaves it, or does not
    code = (
        "import signal\n"
        f"signal.signal(signal.SIGHUP, signal.{before})\n"
        "from consumer.service.signal_pipe import Signals\n"
        "signals = Signals()\n"
        "signal.raise_signal(signal.SIGHUP)\n"
        "print(signals.take())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == ("[]\n" if ignored else "['SIGHUP']\n")


@pytest.mark.parametrize("first", [hang_up, term])
def test_a_closed_terminal_hastens_no_end_that_a_signal_began(
    signals: Signals, first: Callable[[], None]
) -> None:
    bench = ScriptedService(signals)
    bench.pool.per_step = 0
    bench.script = {
        5: lambda: bench.arrive(0, 1),
        20: lambda: (first(), hang_up()),
        30: hang_up,
        40: lambda: setattr(bench.pool, "per_step", None),
    }
    assert bench.run(grace=3600, read_again=False) == EXIT_CLEAN
    assert bench.pool.refused == []
    assert "terminate" not in bench.pool.calls


def test_a_closed_terminal_hastens_no_end_that_an_error_began(signals: Signals) -> None:
    bench = ScriptedService(signals)
    bench.pool.per_step = 0
    bench.script = {
        5: lambda: bench.arrive(0, 1),
        20: lambda: setattr(bench.pool, "fatal", "out of luck"),
        30: hang_up,
        40: lambda: setattr(bench.pool, "per_step", None),
    }
    assert bench.run(grace=3600, read_again=False) == EXIT_FATAL
    assert bench.pool.refused == []
    assert "terminate" not in bench.pool.calls
