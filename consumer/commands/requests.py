"""``oncepool requests list`` and ``show``: rows of the journal."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from consumer.commands.options import DATABASE, JsonOption, with_settings
from consumer.config import Settings
from consumer.journal import connect
from consumer.output import EXIT_UNKNOWN, print_json, print_table
from consumer.since import parse_since
from feedback import operators
from feedback.states import State

app = typer.Typer(no_args_is_help=True)

COLUMNS = ("id", "type", "state", "code", "attempt", "run", "resends", "finished_at", "error")
ATTEMPTS = ("run", "code", "error", "started_at", "ended_at")


@app.callback()
def requests() -> None:
    """Rows of the journal."""


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return parse_since(text, datetime.now(UTC))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


@app.command("list")
@with_settings(*DATABASE)
def list_(
    settings: Settings,
    *,
    state: Annotated[
        State | None, typer.Option(envvar="ONCEPOOL_LIST_STATE", help="Only in this state.")
    ] = None,
    type_: Annotated[
        str | None,
        typer.Option(
            "--type", envvar="ONCEPOOL_LIST_TYPE", metavar="TYPE", help="Only of this type."
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            envvar="ONCEPOOL_LIST_SINCE",
            metavar="TIME",
            help="Only created since: an age (30m, 2h, 7d) or a time (2026-05-01T12:00Z).",
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(envvar="ONCEPOOL_LIST_KEY", metavar="KEY", help="Only with this key."),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            envvar="ONCEPOOL_LIST_REFERENCE", metavar="REF", help="Only with this reference."
        ),
    ] = None,
    limit: Annotated[
        int,
        typer.Option(envvar="ONCEPOOL_LIST_LIMIT", metavar="N", min=1, help="At most so many."),
    ] = 100,
    json: JsonOption = False,
) -> None:
    """List requests, newest first."""
    filters = {
        "state": None if state is None else str(state),
        "type": type_,
        "since": _moment(since),
        "key": key,
        "reference": reference,
    }
    with connect(settings) as connection:
        # One more than asked for tells whether there are more.
        rows = operators.list_requests(
            connection, filters, limit + 1, schema=settings.database_schema
        )
    more = len(rows) > limit
    rows = rows[:limit]
    if json:
        print_json(rows)
    else:
        print_table(COLUMNS, ([row[column] for column in COLUMNS] for row in rows))
    if more:
        typer.echo(f"there are more than these {limit}: raise --limit or narrow it", err=True)


@app.command()
@with_settings(*DATABASE)
def show(
    settings: Settings,
    *,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Request ids.")],
    json: JsonOption = False,
) -> None:
    """Show all that the journal has of requests, and their failed runs.

    Exit code 4 when the journal has no row of one of them.
    """
    with connect(settings) as connection:
        found = {
            name: operators.show_request(connection, name, schema=settings.database_schema)
            for name in ids
        }
    rows = [row for row in found.values() if row is not None]
    missing = [name for name, row in found.items() if row is None]
    if json:
        print_json(rows)
    else:
        for row in rows:
            _print_row(row)
    for name in missing:
        typer.echo(f"oncepool: {name}: the journal has no such request", err=True)
    if missing:
        raise typer.Exit(EXIT_UNKNOWN)


def _print_row(row: dict[str, Any]) -> None:
    attempts = row["attempts"]
    facts = ((n, v) for n, v in row.items() if n != "attempts" and v is not None)
    print_table(("column", "value"), facts)
    if attempts:
        typer.echo("\nfailed runs")
        print_table(ATTEMPTS, ([a[c] for c in ATTEMPTS] for a in attempts))
    typer.echo()
