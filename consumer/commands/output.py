"""What commands print: tables for people, JSON for programs, errors on stderr."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn, TypeVar

import typer

from consumer.admin.plain_json import plain, to_json
from consumer.commands.listing import print_rows
from consumer.commands.voice import speak
from feedback.journal.rows import readable_headers

Item = TypeVar("Item")

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_KILLED = 3
EXIT_UNKNOWN = 4
EXIT_NO_ANSWER = 5
EXIT_REFUSED = 6

MOST = 1_000_000_000
"""No --limit is above it."""


def say(message: str) -> None:
    """Tells people something, on standard error."""
    speak(message, "info")


def warn(problem: str) -> None:
    """Says what is wrong and does not keep the command from its work."""
    speak(problem, "warning")


def fail(message: str, code: int = EXIT_FAILED) -> NoReturn:
    """Prints an error and ends the command."""
    speak(message, "error")
    raise typer.Exit(code)


def print_json(value: Any) -> None:
    """One JSON value on one line; bytes become text where they are UTF-8, else base64."""
    typer.echo(to_json(value).decode())


def as_cell(value: Any) -> str:
    """A value as people read it: sizes with units, lists with commas, nothing for None."""
    match value:
        case None:
            text = ""
        case bool():
            text = str(value).lower()
        case int() if value and hasattr(value, "human_readable"):  # pydantic's ByteSize
            text = value.human_readable().replace(".0", "")
        case list() | tuple():
            text = ", ".join(map(str, value))
        case dict():
            text = to_json(value).decode()
        case datetime():
            text = value.isoformat(sep=" ", timespec="milliseconds")
        case float():
            text = f"{value:g}"
        case _:
            text = str(plain(value) if isinstance(value, bytes | memoryview) else value)
    return text


def header_texts(stored: Any) -> list[tuple[str, str]]:
    """The headers of a row with their values as text; none where nobody can read them."""
    return [
        (name, "" if value is None else value.decode(errors="replace"))
        for name, value in readable_headers(stored)
    ]


def counted(n: int, noun: str) -> str:
    """As people say it: 1 request, 2 requests."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def with_bar(items: Sequence[Item], doing: str) -> Iterable[Item]:
    """The items, with a progress bar on standard error."""
    from rich.console import Console
    from rich.progress import track

    return track(items, description=doing, console=Console(stderr=True), transient=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A table as wide as it has to be when the output is no terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*map(as_cell, row))
    console = Console(highlight=False, markup=False)
    if console.is_terminal:
        console.print(table)
        return
    wide = Console(highlight=False, markup=False, width=10_000)
    with wide.capture() as printed:
        wide.print(table)
    for line in printed.get().splitlines():
        typer.echo(line.rstrip())


def print_listing(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    limit: int,
    *,
    json: bool,
    where_any: Collection[str] = (),
) -> None:
    """At most `limit` rows, of which one more was asked for to tell whether there are more.

    A column of `where_any` is shown where a row has something in it.
    """
    shown = rows[:limit]
    if json:
        print_json(shown)
    else:
        columns = [c for c in columns if c not in where_any or any(row[c] for row in shown)]
        print_rows(columns, ([as_cell(row[column]) for column in columns] for row in shown))
    if len(rows) > limit:
        typer.echo(f"there are more than these {limit}: raise --limit or narrow it", err=True)
