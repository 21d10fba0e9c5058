"""What commands print: tables for people, JSON for programs, errors on stderr."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import orjson
import typer

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_KILLED = 3
EXIT_UNKNOWN = 4
EXIT_NO_ANSWER = 5
EXIT_REFUSED = 6


def fail(message: str, code: int = EXIT_FAILED) -> NoReturn:
    """Prints an error and ends the command."""
    typer.echo(f"oncepool: {message}", err=True)
    raise typer.Exit(code)


def print_json(value: Any) -> None:
    """One JSON value on one line; bytes become text where they are UTF-8, else base64."""
    options = orjson.OPT_NON_STR_KEYS | orjson.OPT_UTC_Z
    typer.echo(orjson.dumps(value, default=_plain, option=options).decode())


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return base64.b64encode(data).decode()
    if isinstance(value, int):
        return int(value)  # pydantic's ByteSize
    return str(value)


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
            text = orjson.dumps(value, default=_plain).decode()
        case datetime():
            text = value.isoformat(sep=" ", timespec="milliseconds")
        case float():
            text = f"{value:g}"
        case _:
            text = str(_plain(value) if isinstance(value, bytes | memoryview) else value)
    return text


def readable_headers(stored: Any) -> list[tuple[str, str]]:
    """The journal's [[name, value in base64 or null], ...] with the values as text."""
    return [
        (name, "" if value is None else base64.b64decode(value).decode(errors="replace"))
        for name, value in stored or ()
    ]


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A table as wide as it has to be when the output is no terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*map(as_cell, row))
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=10_000)
    console.print(table)


def print_listing(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], limit: int, *, json: bool
) -> None:
    """At most `limit` rows, of which one more was asked for to tell whether there are more."""
    shown = rows[:limit]
    if json:
        print_json(shown)
    else:
        print_table(columns, ([row[column] for column in columns] for row in shown))
    if len(rows) > limit:
        typer.echo(f"there are more than these {limit}: raise --limit or narrow it", err=True)
