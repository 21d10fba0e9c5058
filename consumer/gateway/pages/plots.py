"""Small plots as SVG: numbers in, coordinates out; a template draws them. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, NamedTuple

WIDTH, HEIGHT = 560, 140
LEFT, RIGHT, TOP, BOTTOM = 52, 8, 8, 20
MOST_LINES: Final = 5
MOST_KINDS: Final = 3
"""Types of which times are drawn: two lines each."""
OTHERS: Final = "others"

Values = Mapping[int, float]
"""Unix time -> value."""


class PlotLine(NamedTuple):
    """One line; parts of it are apart where values are missing."""

    name: str
    number: int
    """Of its colour and dashes."""
    dashed: bool
    parts: list[str]
    """Points as SVG has them."""
    last: str
    """Its last value, in words."""


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot, with its lines in the units of its box."""

    title: str
    lines: list[PlotLine]
    marks: list[tuple[float, str]]
    """Heights that have a name."""
    times: list[tuple[float, str]]
    """Places along the bottom that have a name."""
    note: str
    width: ClassVar[int] = WIDTH
    height: ClassVar[int] = HEIGHT
    left: ClassVar[int] = LEFT
    floor: ClassVar[int] = HEIGHT - BOTTOM
    right: ClassVar[int] = WIDTH - RIGHT

    @property
    def said(self) -> str:
        """The same for who does not see it."""
        lines = "; ".join(f"{line.name}: last {line.last}" for line in self.lines)
        return f"{self.title}. {lines or 'nothing to show'}"


class Series(NamedTuple):
    """What one line is made of."""

    name: str
    values: Values
    number: int = 0
    dashed: bool = False


def plot(
    title: str,
    series: Sequence[Series],
    window: tuple[int, int, int],
    said: Callable[[float], str],
    note: str = "",
) -> Plot:
    """A plot of a window: (first time, last time, step), all in Unix seconds."""
    start, end, step = window
    top = _round_up(max((v for one in series for v in one.values.values()), default=0.0))
    span = max(end - start, 1)

    def place(at: int, value: float) -> str:
        x = LEFT + (at - start) / span * (WIDTH - LEFT - RIGHT)
        y = HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)
        return f"{x:.1f},{y:.1f}"

    lines = [
        PlotLine(
            one.name,
            one.number,
            one.dashed,
            [" ".join(place(at, one.values[at]) for at in part) for part in _parts(one, step)],
            said(one.values[max(one.values)]) if one.values else "nothing",
        )
        for one in series
    ]
    marks = [(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), said(top * share))
             for share in (0.0, 0.5, 1.0)]  # fmt: skip
    times = [
        (LEFT + share * (WIDTH - LEFT - RIGHT), _clock(start + share * span))
        for share in (0.0, 0.5, 1.0)
    ]
    return Plot(title, lines, marks, times, note)


def throughput(rows: Iterable[Mapping[str, Any]], window: tuple[int, int, int]) -> list[Series]:
    """Ends a second by type: the busiest types, and all others as one. Nothing ended is 0."""
    start, end, step = window
    by_type: defaultdict[str, defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
    for row in rows:
        by_type[row["type"]][int(row["at"])] += (row["done"] or 0) + (row["other"] or 0)
    busiest = sorted(by_type, key=lambda kind: -sum(by_type[kind].values()))
    if len(busiest) > MOST_LINES:
        others: defaultdict[int, float] = defaultdict(float)
        for kind in busiest[MOST_LINES - 1 :]:
            for at, n in by_type[kind].items():
                others[at] += n
        busiest = busiest[: MOST_LINES - 1]
        by_type[OTHERS] = others
        busiest.append(OTHERS)
    ticks = range(start, end + 1, step)
    return [
        Series(kind, {at: by_type[kind].get(at, 0.0) / step for at in ticks}, number)
        for number, kind in enumerate(busiest)
    ]


def times(rows: Iterable[Mapping[str, Any]], what: str) -> list[Series]:
    """p50 and p95 by type of `wait` or `run`, in seconds, of the types that most is known of."""
    found = list(rows)
    known: defaultdict[str, int] = defaultdict(int)
    for row in found:
        known[row["type"]] += row["n"]
    kinds = sorted(known, key=lambda kind: -known[kind])[:MOST_KINDS]
    return [
        Series(
            f"{kind} {name}",
            {int(row["at"]): float(row[what][n]) for row in found if row["type"] == kind},
            number,
            dashed=n == 1,
        )
        for number, kind in enumerate(kinds)
        for n, name in enumerate(("p50", "p95"))
    ]


def latest_times(
    rows: Iterable[Mapping[str, Any]],
) -> dict[str, Mapping[str, Any]]:
    """Of each type its last step in which any is known."""
    latest: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        if row["type"] not in latest or row["at"] > latest[row["type"]]["at"]:
            latest[row["type"]] = row
    return latest


def _parts(series: Series, step: int) -> list[list[int]]:
    parts: list[list[int]] = []
    for at in sorted(series.values):
        if parts and at - parts[-1][-1] <= step:
            parts[-1].append(at)
        else:
            parts.append([at])
    return parts


def _round_up(value: float) -> float:
    """To a number of one figure: 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** int(f"{value:e}".partition("e")[2])
    return next(m * power for m in (1, 2, 5, 10, 20) if m * power >= value)


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M")
