"""Inline SVG: lines over time, with windows shaded. Pure; needs nothing from a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 900, 190, 52, 24, 18
COLOURS = ("#0b7285", "#c2255c", "#e67700", "#5f3dc4", "#2b8a3e")
Point = tuple[float, float]


def plot(
    title: str,
    lines: Mapping[str, Sequence[Point]],
    windows: Sequence[tuple[float, float, str]] = (),
    *,
    unit: str = "",
) -> str:
    """`lines`: points by name; `windows`: begin, end and what was then, shaded behind them."""
    xs = [x for points in lines.values() for x, _ in points] or [0.0]
    ys = [y for points in lines.values() for _, y in points] or [0.0]
    right = max(xs + [end for _, end, _ in windows]) or 1.0
    top = nice(max(ys))
    across = (WIDTH - LEFT - 10) / right
    down = (HEIGHT - BOTTOM - TOP) / top

    def x(value: float) -> float:
        return LEFT + value * across

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - value * down

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">']
    for begin, end, what in windows:
        wide = max(1.0, x(end) - x(begin))
        parts.append(
            f'<rect class="w" x="{x(begin):.1f}" y="{TOP}" width="{wide:.1f}"'
            f' height="{HEIGHT - BOTTOM - TOP}"><title>{escape(what)}</title></rect>'
        )
    for n in range(5):
        value = top * n / 4
        level = f"{y(value):.1f}"
        parts.append(
            f'<line class="g" x1="{LEFT}" x2="{WIDTH - 10}" y1="{level}" y2="{level}"/>'
            f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>'
        )
    for n in range(7):
        value = right * n / 6
        parts.append(
            f'<text x="{x(value):.1f}" y="{HEIGHT - 6}" text-anchor="middle">{value:.0f} s</text>'
        )
    for (name, points), colour in zip(lines.items(), COLOURS, strict=False):
        path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in thinned(points))
        parts.append(f'<polyline points="{path}" stroke="{colour}"><title>{escape(name)}</title>'
                     "</polyline>")  # fmt: skip
    legend = " ".join(
        f'<tspan fill="{colour}">{escape(name)}</tspan>'
        for name, colour in zip(lines, COLOURS, strict=False)
    )
    parts.append(
        f'<text class="t" x="{LEFT}" y="12">{escape(title)} {escape(unit)}: {legend}</text>'
    )
    return "".join([*parts, "</svg>"])


def nice(value: float) -> float:
    """The next number above that reads well on an axis."""
    if value <= 0:
        return 1.0
    size = 1.0
    while size * 10 <= value:
        size *= 10
    while size > value:
        size /= 10
    return next(size * step for step in (1, 2, 4, 5, 8, 10) if size * step >= value)


def thinned(points: Sequence[Point], most: int = 700) -> Sequence[Point]:
    """Not more points than can be told apart."""
    return points[:: len(points) // most + 1]
