"""``oncepool dead-letters``: what ended without an effect and waits for an operator."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from consumer.admin.journal import connect
from consumer.admin.plain_json import as_shown
from consumer.commands import dead_letter_files as letter_files
from consumer.commands import dead_letter_moves as letter_moves
from consumer.commands.dead_letter_options import (
    DeadLetterKind,
    KindOption,
    ReasonOption,
    SearchOption,
    SinceOption,
    TypeOption,
    filters,
    locate,
)
from consumer.commands.options import DATABASE, JsonOption, with_settings
from consumer.commands.output import (
    EXIT_UNKNOWN,
    MOST,
    header_texts,
    print_json,
    print_listing,
    print_table,
    say,
)
from consumer.commands.requests import print_request
from consumer.config.settings import Settings
from feedback.operations.dead_letters import list_dead, show_dead

app = typer.Typer(no_args_is_help=True)

COLUMNS = ("kind", "id", "request_id", "type", "reason", "at", "topic", "partition",
           "kafka_offset", "detail")  # fmt: skip


@app.callback()
def dead_letters() -> None:
    """Messages that could not become a request, and dead requests."""


@app.command("list")
@with_settings(*DATABASE)
def list_(
    settings: Settings,
    *,
    kind: KindOption = None,
    type_: TypeOption = None,
    reason: ReasonOption = None,
    since: SinceOption = None,
    search: SearchOption = None,
    limit: Annotated[
        int,
        typer.Option(
            envvar="ONCEPOOL_LETTERS_LIMIT", metavar="N", min=1, max=MOST, help="At most so many."
        ),
    ] = 100,
    json: JsonOption = False,
) -> None:
    """List dead letters, the latest first. A message's name is its number, a request's its id."""
    chosen = filters(kind, type_, reason, since, search)
    with connect(settings) as connection:
        rows = list_dead(connection, chosen, limit + 1, schema=settings.database_schema)
    print_listing(rows, COLUMNS, limit, json=json)


@app.command()
@with_settings(*DATABASE)
def show(
    settings: Settings,
    *,
    names: Annotated[
        list[str], typer.Argument(metavar="ID...", help="Numbers of messages, ids of requests.")
    ],
    kind: KindOption = None,
    json: JsonOption = False,
) -> None:
    """Show all that is known of dead letters: headers, payload, place, timeline.

    Exit code 4 when one of them is unknown.
    """
    schema = settings.database_schema
    with connect(settings) as connection:
        places, missing = locate(connection, names, kind, schema=schema)
        found = [show_dead(connection, place, schema=schema) for place in places]
    rows = [as_shown(row) for row in found if row is not None]
    if json:
        print_json(rows)
    else:
        for row in rows:
            _print(row)
    for refusal in missing:
        say(f"{refusal.id}: {refusal.reason}")
    if missing:
        raise typer.Exit(EXIT_UNKNOWN)


for command in (letter_moves.retry, letter_moves.drop, letter_files.export):
    app.command()(command)
app.command("import")(letter_files.import_)


def _print(row: dict[str, Any]) -> None:
    if row["kind"] == DeadLetterKind.REQUEST:
        print_request(row)
        return
    headers = header_texts(row["headers"])
    print_table(
        ("column", "value"),
        ((n, v) for n, v in row.items() if n != "headers" and v is not None),
    )
    if headers:
        typer.echo("\nheaders")
        print_table(("header", "value"), headers)
    typer.echo()
