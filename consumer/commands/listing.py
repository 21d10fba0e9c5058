"""Tables of one line a row, as wide as the terminal: for listings, where rows are told apart.

Where the width is not enough, columns of words are shortened first, then spare columns left out;
an id is never cut. In a pipe everything is whole, and nothing long pushes others away.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

import typer

WORDS: Final = frozenset({"result", "error", "reason", "detail"})
"""Columns that may be shortened."""
SPARE: Final = ("kafka_offset", "partition", "topic", "resends", "run", "attempt", "finished_at",
                "at", "request_id", "superseded_by", "due_at", "retry_at", "type")  # fmt: skip
"""Columns that may be left out, the first ones first."""
SHORTEST: Final = 16
"""Cells that a column of words keeps."""
LONGEST_PADDED: Final = 60
"""In a pipe a longer cell is not what the others of its column are padded to."""
GAP: Final = "  "


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints cells under their columns; what the width left out is named on stderr."""
    # Here and below: each command loads this module, and `run` keeps what it loads.
    from rich.console import Console

    lines = [[" ".join(cell.splitlines()) for cell in row] for row in rows]
    console = Console()
    if not console.is_terminal:
        typer.echo("\n".join(whole([columns, *lines])))
        return
    head, *body = fitted(columns, lines, console.width)
    typer.echo(typer.style(head, bold=True))
    for line in body:
        typer.echo(line)
    kept = head.split()
    if left := [column for column in columns if column not in kept]:
        text = f"left out, as the terminal is narrow: {', '.join(left)} (--json has all)"
        typer.echo(text, err=True)


def whole(lines: Sequence[Sequence[Any]]) -> list[str]:
    """Lines that cut nothing."""
    return _joined(lines, _widths(lines, LONGEST_PADDED))


def fitted(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """The heading and the rows, within `width` cells if that is possible without cutting an id."""
    kept = list(range(len(columns)))
    widths = _widths([columns, *rows], sys.maxsize)

    def least() -> int:
        sizes = (min(widths[i], SHORTEST) if columns[i] in WORDS else widths[i] for i in kept)
        return sum(sizes) + len(GAP) * (len(kept) - 1)

    for spare in SPARE:
        # An id that a row has nowhere else is not to be left out.
        if least() > width and spare in columns and not _only_id(spare, columns, rows):
            kept.remove(columns.index(spare))
    left = width - least()
    for i in kept:
        if columns[i] in WORDS:
            least_width = min(widths[i], SHORTEST)
            more = max(0, min(left, widths[i] - least_width))
            widths[i] = least_width + more
            left -= more
    lines = [[_cut(line[i], widths[i]) for i in kept] for line in [columns, *rows]]
    return _joined(lines, [widths[i] for i in kept])


def _only_id(column: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    at = columns.index(column)
    return column == "request_id" and any(row[at] and not row[columns.index("id")] for row in rows)


def _widths(lines: Sequence[Sequence[str]], most: int) -> list[int]:
    from rich.cells import cell_len

    sizes = ([cell_len(cell) for cell in column] for column in zip(*lines, strict=True))
    return [max((size for size in column if size <= most), default=0) for column in sizes]


def _joined(lines: Sequence[Sequence[str]], widths: Sequence[int]) -> list[str]:
    from rich.cells import cell_len

    return [
        GAP.join(
            cell + " " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=True)
        ).rstrip()
        for line in lines
    ]


def _cut(cell: str, width: int) -> str:
    from rich.cells import cell_len, set_cell_size

    return cell if cell_len(cell) <= width else set_cell_size(cell, width - 1).rstrip() + "…"
