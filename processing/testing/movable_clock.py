"""Time in tests: it stands still until it is moved.

It stands at whole milliseconds, which is what a message says of its time: what is sent while it
stands is then no older than what was written while it stood.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from processing.testing.given import KitError

try:
    import time_machine
except ImportError as error:
    raise KitError("a Sandbox moves the clock: pip install 'oncepool[testing]'") from error


class MovableClock:
    """The time, in a sandbox: it stands still until it is moved. For the whole process."""

    def __init__(self, start: datetime | None) -> None:
        if start is not None and start.tzinfo is None:
            raise KitError(f"start={start} has no time zone: give an aware datetime")
        self._travel = time_machine.travel(_whole(start or datetime.now(UTC)), tick=False)
        self._traveller: Any = None

    def start(self) -> None:
        """From now on time stands still."""
        self._traveller = self._travel.start()

    def stop(self) -> None:
        """Time is the real one again."""
        self._travel.stop()

    def now(self) -> datetime:
        """The time, in UTC."""
        return datetime.now(UTC)

    def time(self) -> float:
        """The same in seconds since the epoch."""
        return time.time()

    def after(self, seconds: float) -> float:
        """The time when these have passed. Raises ValueError where that would be backward."""
        if not seconds >= 0:
            raise ValueError(f"{seconds} s can't pass: time passes forward; clock.move() goes back")
        return self.time() + seconds

    def move(self, seconds: float) -> None:
        """Moves it, backwards too, to the next whole millisecond, and runs nothing."""
        self._traveller.move_to(_whole(self.now() + timedelta(seconds=seconds)))


def _whole(at: datetime) -> datetime:
    return at + timedelta(microseconds=-at.microsecond % 1000)
