"""``oncepool requests``: rows of the journal, and what moves them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from consumer.admin.journal import connect
from consumer.commands import request_actions
from consumer.commands.operator import moment
from consumer.commands.options import DATABASE, JsonOption, with_settings
from consumer.commands.output import (
    EXIT_UNKNOWN,
    print_json,
    print_listing,
    print_table,
    readable_headers,
)
from consumer.config.settings import Settings
from feedback.contract.states import State
from feedback.operations import requests as operators

app = typer.Typer(no_args_is_help=True)

COLUMNS = ("id", "type", "state", "code", "attempt", "run", "resends", "finished_at", "error")
ATTEMPTS = ("run", "code", "error", "started_at", "ended_at")
TRANSITIONS = ("at", "action", "from_state", "to_state", "run", "who", "why")


@app.callback()
def requests() -> None:
    """Rows of the journal."""


StateOption = Annotated[
    State | None, typer.Option(envvar="ONCEPOOL_LIST_STATE", help="Only in this state.")
]
TypeOption = Annotated[
    str | None,
    typer.Option(
        "--type",
        envvar="ONCEPOOL_LIST_TYPE",
        metavar="TYPE",
        help="Only of this type; * stands for anything.",
    ),
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        envvar="ONCEPOOL_LIST_SINCE",
        metavar="TIME",
        help="Only those that ended since, or were made since and have not ended: an age"
        " (30m, 2h, 7d) or a time (2026-05-01T12:00Z).",
    ),
]
KeyOption = Annotated[
    str | None, typer.Option(envvar="ONCEPOOL_LIST_KEY", metavar="KEY", help="Only with this key.")
]
ReferenceOption = Annotated[
    str | None,
    typer.Option(envvar="ONCEPOOL_LIST_REFERENCE", metavar="REF", help="Only with this reference."),
]
LimitOption = Annotated[
    int, typer.Option(envvar="ONCEPOOL_LIST_LIMIT", metavar="N", min=1, help="At most so many.")
]


@app.command("list")
@with_settings(*DATABASE)
def list_(
    settings: Settings,
    *,
    state: StateOption = None,
    type_: TypeOption = None,
    since: SinceOption = None,
    key: KeyOption = None,
    reference: ReferenceOption = None,
    limit: LimitOption = 100,
    json: JsonOption = False,
) -> None:
    """List requests, newest first."""
    filters = {
        "state": None if state is None else str(state),
        "type": type_,
        "since": moment(since),
        "key": key,
        "reference": reference,
    }
    with connect(settings) as connection:
        rows = operators.list_requests(
            connection, filters, limit + 1, schema=settings.database_schema
        )
    print_listing([as_shown(row) for row in rows], COLUMNS, limit, json=json)


@app.command()
@with_settings(*DATABASE)
def show(
    settings: Settings,
    *,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Request ids.")],
    json: JsonOption = False,
) -> None:
    """Show all that the journal has of requests: payload, place, failed runs, operators' moves.

    Exit code 4 when the journal has no row of one of them.
    """
    with connect(settings) as connection:
        found = {
            name: operators.show_request(connection, name, schema=settings.database_schema)
            for name in ids
        }
    rows = [as_shown(row) for row in found.values() if row is not None]
    missing = [name for name, row in found.items() if row is None]
    if json:
        print_json(rows)
    else:
        for row in rows:
            print_request(row)
    for name in missing:
        typer.echo(f"oncepool: {name}: the journal has no such request", err=True)
    if missing:
        raise typer.Exit(EXIT_UNKNOWN)


for command in (request_actions.retry, request_actions.cancel, request_actions.resolve):
    app.command()(command)


def as_shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row with its fingerprint as the statuses have it, in hex."""
    value = row.get("fingerprint")
    return row if value is None else {**row, "fingerprint": bytes(value).hex()}


def print_request(row: dict[str, Any]) -> None:
    """A row, column by column, and its timeline."""
    headers = ", ".join(f"{n}: {v}" for n, v in readable_headers(row["headers"]))
    facts = {**row, "headers": headers or None}
    parts = (
        ("failed runs", ATTEMPTS, facts.pop("attempts")),
        ("moved by operators", TRANSITIONS, facts.pop("transitions")),
    )
    print_table(("column", "value"), ((n, v) for n, v in facts.items() if v is not None))
    for title, columns, lines in parts:
        if lines:
            typer.echo(f"\n{title}")
            print_table(columns, ([line[c] for c in columns] for line in lines))
    typer.echo()
