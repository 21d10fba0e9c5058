"""Whether a thread is in a call is known whatever interrupts it."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

import pytest

from feedback import Client
from feedback.client import own_calls
from feedback.client.own_calls import OwnCalls


def test_each_thread_knows_of_its_own_calls() -> None:
    calls = OwnCalls()
    others: list[bool] = []
    with calls.lock:
        with calls.lock:
            other = threading.Thread(target=lambda: others.append(calls.running))
            other.start()
            other.join()
        assert calls.running
    assert not calls.running
    assert others == [False]


@pytest.mark.parametrize("number", range(8))
def test_a_thread_is_in_no_call_when_a_signal_handler_has_ended_it(
    client: Client, number: int
) -> None:
    """It raises at one point of what counts the calls, or another."""
    client.status("a")
    left = number

    def interrupt(frame: FrameType, _event: str, _argument: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename != own_calls.__file__:
            return None
        if not left:
            sys.settrace(before)
            raise KeyboardInterrupt
        left -= 1
        return interrupt

    before = sys.gettrace()
    sys.settrace(interrupt)
    try:
        client.status("a")
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    client.close()
    assert not client._deliveries._thread.is_alive()
