"""``oncepool status``."""

from __future__ import annotations

from typing import Annotated

import typer

from consumer.admin.lookup import look_up
from consumer.commands.options import DATABASE, REDIS, JsonOption, with_settings
from consumer.commands.output import EXIT_UNKNOWN, warn
from consumer.commands.status_output import as_object, print_statuses, unknown
from consumer.config.settings import Settings

app = typer.Typer()


@app.command()
@with_settings(*REDIS, *DATABASE)
def status(
    settings: Settings,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Request ids.")],
    json: JsonOption = False,
) -> None:
    """Show the state of requests, from Redis and the journal.

    Exit code 4 when one of them is unknown: not arrived, lost or forgotten.
    """
    found = look_up(settings, ids, warn)
    objects = [
        unknown(id_) if known is None else as_object(known)
        for id_, known in zip(ids, found, strict=True)
    ]
    print_statuses(objects, json=json)
    if None in found:
        raise typer.Exit(EXIT_UNKNOWN)
