"""``oncepool schedules``: what comes by the clock."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated

import typer

from consumer.admin.journal import connect
from consumer.commands.listing import print_rows
from consumer.commands.operator import WhoOption, WhyOption, by
from consumer.commands.options import DATABASE, JsonOption, with_settings
from consumer.commands.output import EXIT_REFUSED, EXIT_UNKNOWN, as_cell, print_json, say
from consumer.config.settings import Settings
from feedback.operations.request_actions import By
from feedback.operations.request_reads import Row
from feedback.operations.schedules import (
    drop_schedules,
    list_schedules,
    pause_schedules,
    resume_schedules,
)

app = typer.Typer(no_args_is_help=True)

COLUMNS = ("name", "type", "cron", "tz", "missed", "state", "next_at", "last_tick", "ticks",
           "skipped")  # fmt: skip

NamesArgument = Annotated[list[str], typer.Argument(metavar="NAME...", help="Schedules.")]


@app.callback()
def schedules() -> None:
    """Schedules that apps declare with @app.periodic: one request per tick."""


@app.command("list")
@with_settings(*DATABASE)
def list_(settings: Settings, *, json: JsonOption = False) -> None:
    """List schedules: when each is due next, its latest tick, whether it is paused."""
    with connect(settings) as connection:
        rows = list_schedules(connection, schema=settings.database_schema)
    _print(rows, json=json)


@app.command()
@with_settings(*DATABASE)
def pause(
    settings: Settings,
    *,
    names: NamesArgument,
    who: WhoOption = None,
    why: WhyOption = None,
    json: JsonOption = False,
) -> None:
    """Make no requests of a schedule's ticks any more; those that were made run.

    Ticks that fall into the pause are not made up for. Exit code 4 when a schedule is unknown.
    """
    _set_paused(settings, names, by(who, why), paused=True, json=json)


@app.command()
@with_settings(*DATABASE)
def resume(
    settings: Settings,
    *,
    names: NamesArgument,
    who: WhoOption = None,
    why: WhyOption = None,
    json: JsonOption = False,
) -> None:
    """Make requests of a paused schedule's ticks again, from now on."""
    _set_paused(settings, names, by(who, why), paused=False, json=json)


@app.command()
@with_settings(*DATABASE)
def drop(
    settings: Settings,
    *,
    names: NamesArgument,
    who: WhoOption = None,
    why: WhyOption = None,
    json: JsonOption = False,
) -> None:
    """Forget schedules that no app declares any more. Exit code 6 for one that an instance has."""
    schema = settings.database_schema
    with connect(settings) as connection:
        dropped = drop_schedules(connection, names, by(who, why), schema=schema)
        rows = list_schedules(connection, names, schema=schema)
    if json:
        print_json(sorted(dropped))
    left = {row["name"] for row in rows}
    _complain(names, dropped | left)
    for name in sorted(left):
        say(f"{name}: a live instance declares it")
    if left:
        raise typer.Exit(EXIT_REFUSED)
    if dropped != set(names):
        raise typer.Exit(EXIT_UNKNOWN)


def _set_paused(
    settings: Settings, names: Sequence[str], who_why: By, *, paused: bool, json: bool
) -> None:
    change = pause_schedules if paused else resume_schedules
    with connect(settings) as connection:
        change(connection, names, who_why, schema=settings.database_schema)
        rows = list_schedules(connection, names, schema=settings.database_schema)
    _print(rows, json=json)
    known = {row["name"] for row in rows}
    _complain(names, known)
    if known != set(names):
        raise typer.Exit(EXIT_UNKNOWN)


def _complain(names: Sequence[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            say(f"{name}: there is no such schedule")


def _print(rows: Sequence[Row], *, json: bool) -> None:
    if json:
        print_json(rows)
        return
    shown = ({**row, "state": _state(row)} for row in rows)
    print_rows(COLUMNS, ([as_cell(row[column]) for column in COLUMNS] for row in shown))


def _state(row: Row) -> str:
    if row["paused_at"] is not None:
        return "paused"
    return "live" if row["live"] else "no instance"
