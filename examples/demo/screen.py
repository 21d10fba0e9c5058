"""What the demo shows while it plays: a live view on a terminal, else a line now and then."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

LINE_EVERY = 2.0
"""Seconds between two lines where there is no terminal."""
RATE_OVER = 3.0
KEPT = 12
"""Events that stay on the screen."""
BAR = 40
COLOURS = {
    "done": "green", "waiting": "cyan", "superseded": "blue", "rejected": "yellow",
    "failed": "red", "dead": "red", "in_doubt": "magenta",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class View:
    """The play as it is now."""

    waits_for: str
    """What the story waits for."""
    planned: int
    """Messages to send, not counting those sent again."""
    sent: int
    again: int
    answered: int
    states: Counter[str]
    """How many requests stand in which state."""
    programs: Mapping[str, str]
    """Name -> what it does."""


class Screen:
    """Shows views and events. For `with`."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._events: deque[str] = deque(maxlen=KEPT)
        self._rates = Rates(RATE_OVER)
        self._began = time.monotonic()
        self._next_line = 0.0
        self._picture: RenderableType = Text()
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._began

    def event(self, text: str) -> None:
        """Something happened."""
        if self._console.is_terminal:
            self._events.append(f"{self.seconds:6.1f} s  {text}")
            self._refresh()
        else:
            self._print(text)

    def show(self, view: View) -> None:
        """The play goes on."""
        now = time.monotonic()
        rates = self._rates.of(now, Counter({**view.states, "answered": view.answered}))
        if self._console.is_terminal:
            self._picture = _picture(view, rates)
            self._refresh()
        elif now >= self._next_line:
            self._next_line = now + LINE_EVERY
            self._print(_line(view, rates))

    def _refresh(self) -> None:
        self._live.update(Group(self._picture, *map(Text, self._events)), refresh=True)

    def _print(self, text: str) -> None:
        line = f"{self.seconds:6.1f} s  {text}"
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)


class Rates:
    """Changes a second, over the last few seconds."""

    def __init__(self, over: float) -> None:
        self._over = over
        self._points: deque[tuple[float, Counter[str]]] = deque()

    def of(self, now: float, counts: Counter[str]) -> dict[str, float]:
        """The rate of each count, when they stand so at `now`."""
        self._points.append((now, counts))
        while self._points[0][0] < now - self._over:
            self._points.popleft()
        start, first = self._points[0]
        return {name: (n - first[name]) / ((now - start) or 1.0) for name, n in counts.items()}


def _line(view: View, rates: Mapping[str, float]) -> str:
    states = ", ".join(f"{count} {state}" for state, count in view.states.most_common() if count)
    return (
        f"{view.answered} of {view.states.total()} answered, {rates['answered']:.0f}/s; sent "
        f"{view.sent} (+{view.again} again); {states or 'nothing yet'}; next: {view.waits_for}"
    )


def _picture(view: View, rates: Mapping[str, float]) -> RenderableType:
    bars = Table.grid(padding=(0, 1))
    for name, count, total in (
        ("sent", view.sent, view.planned),
        ("answered", view.answered, view.states.total()),
    ):
        bar = ProgressBar(total=max(total, 1), completed=count, width=BAR)
        bars.add_row(name, bar, f"{count:,} of {total:,}")
    bars.add_row("throughput", f"{rates['answered']:,.0f} answers/s", f"{view.again:,} sent again")
    states = Table(box=None, pad_edge=False)
    for title in ("state", "requests", "per second"):
        states.add_column(title, justify="left" if title == "state" else "right")
    for state, count in sorted(view.states.items()):
        style = COLOURS.get(state, "")
        states.add_row(Text(state, style=style), f"{count:,}", f"{rates[state]:+,.0f}")
    programs = Table(box=None, pad_edge=False, show_header=False)
    for name, does in view.programs.items():
        programs.add_row(name, does)
    both = Table.grid(padding=(0, 6))
    both.add_row(states, programs)
    picture = Group(bars, Text(), both)
    return Panel(picture, title="oncepool demo", subtitle=f"next: {view.waits_for}")
