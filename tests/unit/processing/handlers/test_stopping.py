"""The stopping flag, also when a signal comes in the middle of a wait."""

from __future__ import annotations

import signal
import threading

from processing.handlers.request import Request
from processing.handlers.stopping import STOPPING, Stopping


def test_flag() -> None:
    flag = Stopping()
    assert not flag.is_set()
    assert not flag.wait(0)
    assert not flag.wait(0.01)
    flag.set()
    flag.set()
    assert flag.is_set()
    assert flag.wait(0)
    assert flag.wait(10)
    flag.clear()
    assert not flag.wait(0)


def test_request_reads_the_flag_of_the_process() -> None:
    request = Request("1", "t", None, 1, {}, None, "t", 0, 0, {})
    assert not request.stopping
    STOPPING.set()
    try:
        assert request.stopping
    finally:
        STOPPING.clear()


def test_everybody_who_waits_is_woken() -> None:
    flag = Stopping()
    threads = [threading.Thread(target=flag.wait, args=(10,)) for _ in range(5)]
    for thread in threads:
        thread.start()
    flag.set()
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()


def test_a_signal_handler_may_set_it_while_its_thread_waits() -> None:
    flag = Stopping()
    before = signal.signal(signal.SIGALRM, lambda *_: flag.set())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert flag.wait(3600)
    finally:
        signal.signal(signal.SIGALRM, before)
