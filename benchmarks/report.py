"""How a benchmark tells what it found: a table for people, JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table

from benchmarks.machine import Machine

RESULTS = Path(__file__).parent / "results"

# Without a terminal, rich would fold tables at 80 columns.
console = Console(width=None if sys.stdout.isatty() else 110)


def say(line: str) -> None:
    """One line of progress."""
    console.print(line, style="dim", highlight=False)


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], caption: str = ""
) -> None:
    """A table whose first column is text and whose others are figures."""
    table = Table(title=title, caption=caption or None, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        table.add_row(*(shown(value) for value in row))
    console.print(table)


def shown(value: object) -> str:
    """A figure as a table shows it: three digits that count, thousands apart; None is a dash."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def write_json(
    name: str, machine: Machine, results: dict[str, Any], folder: Path = RESULTS
) -> Path:
    """Writes <folder>/<name>.json with the machine's facts first, and returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    document = {"benchmark": name, "machine": asdict(machine), **results}
    path.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2, default=asdict) + b"\n")
    return path
