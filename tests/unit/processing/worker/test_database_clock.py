"""What time it is in the database, as far as a worker knows."""

from __future__ import annotations

from typing import Any, cast

import pytest
import time_machine

from feedback.contract.times import EARLIEST, LATEST
from processing.worker.database_clock import EVERY, DatabaseClock


class Server:
    """Has a clock; each statement takes `there` and `back`."""

    def __init__(self) -> None:
        self.monotonic = 1_000.0
        self.ahead = 1_700_000_000.0
        self.there = self.back = 0.01
        self.sent: list[bytes] = []
        self._said = 0.0

    def send(self, statement: bytes) -> Any:
        self.sent.append(statement)
        self.monotonic += self.there
        self._said = self.time
        self.monotonic += self.back
        return self

    def get_value(self, row: int, column: int) -> bytes:
        return str(self._said).encode()

    @property
    def time(self) -> float:
        return self.monotonic + self.ahead


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def clock(server: Server) -> DatabaseClock:
    return DatabaseClock(lambda: server.monotonic)


def begin(clock: DatabaseClock, server: Server) -> float:
    """Seconds by which the clock is wrong after it."""
    clock.send(cast("Any", server.send), b"BEGIN")
    return clock.time() - server.time


@time_machine.travel("2030-05-01T00:00:00Z", tick=False)
def test_it_is_the_workers_own_until_it_was_read(clock: DatabaseClock, server: Server) -> None:
    assert clock.now().isoformat() == "2030-05-01T00:00:00+00:00"
    assert begin(clock, server) == pytest.approx(0, abs=1e-6)


def test_it_is_asked_with_a_statement_now_and_then(clock: DatabaseClock, server: Server) -> None:
    for seconds in (0, 1, EVERY - 1.5, EVERY):
        server.monotonic += seconds
        assert begin(clock, server) == pytest.approx(0, abs=1e-6)
    asked = [statement != b"BEGIN" for statement in server.sent]
    assert asked == [True, False, False, True]


def test_the_next_reading_tells_that_it_was_set(clock: DatabaseClock, server: Server) -> None:
    begin(clock, server)
    for jump in (3600, -7200):
        server.ahead += jump
        assert begin(clock, server) == pytest.approx(-jump), "not read yet"
        server.monotonic += EVERY
        assert begin(clock, server) == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("there, back", [(8.0, 0.0), (0.0, 8.0)])
def test_a_reply_that_takes_long_moves_it_only_where_it_must(
    clock: DatabaseClock, server: Server, there: float, back: float
) -> None:
    begin(clock, server)
    server.there, server.back = there, back
    server.monotonic += EVERY
    assert begin(clock, server) == pytest.approx(0, abs=1e-6), "it may well be as known"
    server.ahead += 3600
    server.monotonic += EVERY
    assert abs(begin(clock, server)) == pytest.approx(4), "half of what it took"
    server.there = server.back = 0.01
    server.monotonic += EVERY
    assert begin(clock, server) == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("said, now", [(-1e12, EARLIEST), (1e12, LATEST)])
def test_no_clock_is_beyond_all_times(
    clock: DatabaseClock, server: Server, said: float, now: object
) -> None:
    clock.read(said, server.monotonic)
    assert clock.now() == now
