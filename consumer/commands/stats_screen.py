"""A picture that is taller than the terminal, scrolled by keys. `Scroll` is pure."""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import time
import tty
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, ConsoleRenderable, RenderableType
from rich.segment import Segment, Segments

LOOK = 0.1
"""Seconds between two looks whether it is to end."""
KEYS = {
    b"\x1b[A": "up", b"k": "up", b"\x1b[B": "down", b"j": "down", b"\n": "down",
    b"\x1b[5~": "back", b"b": "back", b"\x1b[6~": "on", b" ": "on",
    b"\x1b[H": "top", b"g": "top", b"\x1b[F": "end", b"G": "end", b"q": "quit",
}  # fmt: skip
_KNOWN = re.compile(b"|".join(map(re.escape, sorted(KEYS, key=len, reverse=True))))


class Scroll:
    """Which lines of a picture are seen."""

    def __init__(self) -> None:
        self.first = 0
        self._page = 1
        self._most = 0

    def fit(self, lines: int, height: int) -> range:
        """The lines that are seen of so many, in a window of this height."""
        self._page = max(1, height)
        self._most = max(0, lines - self._page)
        self.first = min(self.first, self._most)
        return range(self.first, min(lines, self.first + self._page))

    def key(self, what: str) -> None:
        """Moves the window."""
        steps = {"up": -1, "down": 1, "back": -self._page, "on": self._page}
        targets = {"top": 0, "end": self._most}
        wanted = targets.get(what, self.first + steps.get(what, 0))
        self.first = max(0, min(self._most, wanted))


def window(console: Console, picture: RenderableType, scroll: Scroll) -> ConsoleRenderable:
    """The part of the picture that is seen, and below it, where there is more, how to see that."""
    lines = console.render_lines(picture, pad=False)
    height = console.height
    if len(lines) <= height:
        seen = scroll.fit(len(lines), height)
        footer = ""
    else:
        seen = scroll.fit(len(lines), height - 1)
        footer = f"lines {seen.start + 1}-{seen.stop} of {len(lines)}: arrows, space and b; q ends"
    shown: list[Segment] = []
    for number in seen:
        shown += [*lines[number], Segment.line()]
    return Segments([*shown, Segment(footer)] if footer else shown[:-1])


@contextmanager
def keys() -> Iterator[Callable[[float, Callable[[], bool]], str | None]]:
    """Gives a function that waits so many seconds for a key, or until it is to end.

    Without a terminal as standard input no key ever comes.
    """
    descriptor = sys.stdin.fileno() if sys.stdin.isatty() else None
    if descriptor is None:
        yield _wait_without
        return
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)  # Ctrl-C stays a signal

    pressed: deque[bytes] = deque()  # a look takes its time: several come at once after it

    def wait(seconds: float, ended: Callable[[], bool]) -> str | None:
        end = time.monotonic() + seconds
        while not pressed and (left := end - time.monotonic()) > 0 and not ended():
            if select.select([descriptor], [], [], min(LOOK, left))[0]:
                pressed.extend(_KNOWN.findall(os.read(descriptor, 1024)))
        return KEYS[pressed.popleft()] if pressed else None

    try:
        yield wait
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _wait_without(seconds: float, ended: Callable[[], bool]) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and not ended():
        time.sleep(min(LOOK, left))
