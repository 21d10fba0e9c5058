"""A relay in a process that was forked: its threads are not there."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable

import pytest

from feedback import ConfigurationError
from feedback.outbox.relay import Relay, Route

HANGS = 20
"""Seconds."""


def made() -> Relay:
    return Relay(
        "postgresql://127.0.0.1:1/x", {"default": Route("t", {"bootstrap.servers": "127.0.0.1:1"})}
    )


def in_a_fork(check: Callable[[], None]) -> int:
    """How a forked process ends that does this; 0 where nothing is raised.

    Kafka clients that tests before left as garbage are freed here: a process that was forked can't.
    """
    gc.collect()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(HANGS)
        try:
            check()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def test_one_that_was_started_before_the_fork_is_refused_there() -> None:
    relay = made()

    def check() -> None:
        with pytest.raises(ConfigurationError, match="forked"):
            relay.start()
        assert relay.close()

    with relay:
        assert in_a_fork(check) == 0
        assert relay.start() is relay, "where it was made it goes on"


def test_one_that_was_only_made_before_the_fork_may_be_started_there() -> None:
    relay = made()

    def check() -> None:
        relay.start()
        assert all(loop._thread.is_alive() for loop in relay._loops)

    assert in_a_fork(check) == 0


def test_one_that_was_closed_before_the_fork_may_be_started_there() -> None:
    """As of a server that forks its workers from a program that is ready."""
    relay = made()
    relay.start()
    assert relay.close()

    def check() -> None:
        relay.start()
        assert all(loop._thread.is_alive() for loop in relay._loops)
        assert relay.close()

    assert in_a_fork(check) == 0
