"""``oncepool outbox``: the producer's own tables."""

from __future__ import annotations

from typing import Annotated

import typer

from consumer.admin.outbox import connect_outbox
from consumer.commands import outbox_rows
from consumer.commands.options import JsonOption, with_settings
from consumer.commands.output import EXIT_FAILED, print_json, print_table
from consumer.config.settings import Settings
from feedback.outbox.checks import problems
from feedback.outbox.migrations import migrate as migrate_outbox
from feedback.outbox.migrations import script

app = typer.Typer(no_args_is_help=True, help="The producer's outbox.")

OUTBOX = ("outbox_database_url", "outbox_schema", "outbox_senders", "outbox_routes")

SqlOption = Annotated[
    bool,
    typer.Option(
        "--sql",
        envvar="ONCEPOOL_OUTBOX_SQL",
        help="Only print the statements that make one, for another migration tool.",
    ),
]
FromOption = Annotated[
    int,
    typer.Option(
        "--from",
        envvar="ONCEPOOL_OUTBOX_FROM",
        metavar="VERSION",
        min=0,
        help="With --sql: print only what an outbox of this version lacks (see `outbox check`).",
    ),
]


@app.callback()
def outbox() -> None:
    """The producer's outbox."""


@app.command()
@with_settings(*OUTBOX)
def migrate(
    settings: Settings, *, sql: SqlOption = False, since: FromOption = 0, json: JsonOption = False
) -> None:
    """Create or upgrade the outbox's tables and register its senders. Safe to run again."""
    schema, senders = settings.outbox_schema, settings.outbox_sender_names
    if since and not sql:
        raise typer.BadParameter("--from is for --sql: else the outbox says its version itself")
    if sql:
        text = script(schema, senders, since)
        if json:
            print_json({"schema": schema, "sql": text})
        else:
            typer.echo(text, nl=False)
        return
    # Behind another one that is at it, for as long as that takes.
    with connect_outbox(settings, lock=0) as connection:
        applied = migrate_outbox(connection, schema, senders)
    if json:
        print_json({"schema": schema, "applied": applied, "senders": senders})
    else:
        done = f"applied {', '.join(applied)}" if applied else "nothing to do"
        typer.echo(f"schema {schema}: {done}")


@app.command()
@with_settings(*OUTBOX)
def check(settings: Settings, json: JsonOption = False) -> None:
    """Say what is missing of the outbox, or defined otherwise, whoever has made it.

    Exit code 1 if anything is that it needs.
    """
    with connect_outbox(settings) as connection:
        found = problems(connection, settings.outbox_schema, settings.outbox_sender_names)
    right = not any(problem.wrong for problem in found)
    if json:
        print_json({"ok": right, "problems": [problem._asdict() for problem in found]})
    elif found:
        rows = (("WRONG" if p.wrong else "warning", p.text, p.advice) for p in found)
        print_table(("result", "found", "to do"), rows)
    else:
        typer.echo(f"schema {settings.outbox_schema}: all there")
    if not right:
        raise typer.Exit(EXIT_FAILED)


app.command("list")(outbox_rows.list_)
app.command()(outbox_rows.retry)
app.command()(outbox_rows.drop)
app.command()(outbox_rows.prune)
app.command()(outbox_rows.stats)
