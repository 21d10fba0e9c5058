"""``oncepool migrate``."""

from __future__ import annotations

import typer

from consumer.admin.journal import explained
from consumer.commands.options import DATABASE, JsonOption, with_settings
from consumer.commands.output import print_json
from consumer.config.settings import Settings
from feedback.journal.migrations import migrate as migrate_journal

app = typer.Typer()


@app.command()
@with_settings(*DATABASE)
def migrate(settings: Settings, json: JsonOption = False) -> None:
    """Create or upgrade the journal's tables. Safe to run again, and from many machines at once."""
    settings.require("database_url")
    with explained():
        applied = migrate_journal(settings.database_url, settings.database_schema)
    if json:
        print_json({"schema": settings.database_schema, "applied": applied})
    elif applied:
        typer.echo(f"schema {settings.database_schema}: applied {', '.join(map(str, applied))}")
    else:
        typer.echo(f"schema {settings.database_schema}: nothing to do")
