"""Drawings of results as SVG: grouped bars with whiskers, and lines over time with events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl

from benchmarks.spread import Spread

mpl.use("svg")
# Text stays text, and the same figures give the same file.
mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "oncepool", "font.size": 9})

from matplotlib import pyplot as plt  # noqa: E402 - after the back end is chosen

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#1f5fa8", "#e07b29", "#5a9e4b", "#a33d6f", "#7a7a7a")


@dataclass(frozen=True, slots=True)
class Curve:
    """One curve: points over time, drawn as steps; `events` are (seconds, what happened)."""

    name: str
    seconds: Sequence[float]
    values: Sequence[float]
    events: Sequence[tuple[float, str]] = ()


def bars(
    path: Path,
    title: str,
    unit: str,
    groups: Mapping[str, Mapping[str, Spread]],
) -> None:
    """A bar per group and series: its height the median, its whisker from lowest to highest.

    `groups` maps a group's name to its series.
    """
    series = list(dict.fromkeys(name for group in groups.values() for name in group))
    figure, axes = plt.subplots(figsize=(1.8 + 1.6 * len(groups) * max(1, len(series) / 3), 4))
    width = 0.8 / len(series)
    for number, name in enumerate(series):
        present = [(at, group[name]) for at, group in enumerate(groups.values()) if name in group]
        heights = [one.median for _, one in present]
        whiskers = [
            [one.median - one.low for _, one in present],
            [one.high - one.median for _, one in present],
        ]
        axes.bar(
            [at + (number - (len(series) - 1) / 2) * width for at, _ in present],
            heights, width * 0.92, yerr=whiskers, capsize=3, label=name,
            color=COLOURS[number % len(COLOURS)],
        )  # fmt: skip
    axes.set_xticks(range(len(groups)), list(groups))
    _finish(figure, [axes], path, title, unit)


def lines(
    path: Path,
    title: str,
    unit: str,
    panels: Mapping[str, Sequence[Curve]],
    across: str = "seconds",
) -> None:
    """A panel for each entry, one above the other, with the same axis of time."""
    figure, found = plt.subplots(
        len(panels), 1, figsize=(9, 1 + 2.4 * len(panels)), sharex=True, squeeze=False
    )
    axes = [row[0] for row in found]
    for panel, (name, curves) in zip(axes, panels.items(), strict=True):
        for number, curve in enumerate(curves):
            colour = COLOURS[number % len(COLOURS)]
            panel.step(curve.seconds, curve.values, where="post", label=curve.name, color=colour)
            for at, what in curve.events:
                panel.axvline(at, color="#999999", linewidth=0.8, linestyle=":")
                panel.annotate(
                    what, (at, 1), xycoords=("data", "axes fraction"), rotation=90,
                    fontsize=7, va="top", ha="right", color="#555555",
                )  # fmt: skip
        panel.set_title(name, fontsize=9, loc="left")
    axes[-1].set_xlabel(across)
    _finish(figure, axes, path, title, unit)


def _finish(figure: Figure, axes: Sequence[Axes], path: Path, title: str, unit: str) -> None:
    for panel in axes:
        panel.set_ylim(bottom=0)
        panel.set_ylabel(unit)
        panel.spines[["top", "right"]].set_visible(False)
        panel.legend(fontsize=8, frameon=False, loc="lower right")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    figure.tight_layout()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    plt.close(figure)
