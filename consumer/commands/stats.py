"""``oncepool stats``: instances, lag and outcomes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import redis
import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from consumer.commands.options import DATABASE, KAFKA, REDIS, JsonOption, with_settings
from consumer.config import Settings
from consumer.errors import ConfigError
from consumer.journal import connect
from consumer.lag import group_lag
from consumer.masking import mask_url
from consumer.output import as_cell, print_json
from feedback import operators
from feedback.errors import OncepoolError
from processing.registry import connect as connect_redis
from processing.registry import instances

app = typer.Typer()

REFRESH = 2.0
INSTANCE = ("id", "host", "version", "workers", "joined", "assigned", "in_hand", "queued")
TOPIC = ("topic", "partitions", "waiting")
COUNT = ("type", "state", "code", "n")


@dataclass(frozen=True, slots=True)
class Part:
    """One source of figures: its name, its rows, or why there are none."""

    name: str
    columns: tuple[str, ...]
    rows: list[dict[str, Any]]
    problem: str | None = None


@app.command()
@with_settings(*KAFKA, "kafka_group", *DATABASE, *REDIS)
def stats(
    settings: Settings,
    *,
    watch: Annotated[
        bool,
        typer.Option("--watch", envvar="ONCEPOOL_STATS_WATCH", help="Show it until interrupted."),
    ] = False,
    minutes: Annotated[
        int,
        typer.Option(
            envvar="ONCEPOOL_STATS_MINUTES", metavar="N", min=1, help="Outcomes of so many minutes."
        ),
    ] = 60,
    json: JsonOption = False,
) -> None:
    """Show instances with their load, waiting messages, and how requests ended lately.

    Shows what the configured services tell; exit code 1 when none of them answers.
    """
    if watch and json:
        raise typer.BadParameter("--watch is for people: leave out --json")
    if watch:
        _watch(settings, minutes)
        return
    parts = collect(settings, minutes)
    if json:
        print_json({part.name: part.rows for part in parts if part.problem is None})
    else:
        Console(highlight=False).print(render(parts))
    for part in parts:
        if part.problem is not None and json:
            typer.echo(f"oncepool: {part.name}: {part.problem}", err=True)
    if all(part.problem is not None for part in parts):
        raise typer.Exit(1)


def _watch(settings: Settings, minutes: int) -> None:
    with Live(render(collect(settings, minutes)), screen=False, auto_refresh=False) as live:
        while True:
            time.sleep(REFRESH)
            live.update(render(collect(settings, minutes)), refresh=True)


def collect(settings: Settings, minutes: int) -> list[Part]:
    """What each configured service tells."""
    sources: list[tuple[str, tuple[str, ...], bool, Callable[[], list[dict[str, Any]]]]] = [
        ("instances", INSTANCE, bool(settings.redis_url), lambda: _instances(settings)),
        (
            "topics",
            TOPIC,
            bool(settings.kafka_bootstrap_servers and settings.kafka_topics),
            lambda: [lag._asdict() for lag in group_lag(settings)],
        ),
        ("requests", COUNT, bool(settings.database_url), lambda: _counts(settings, minutes)),
    ]
    parts: list[Part] = []
    for name, columns, configured, read in sources:
        if not configured:
            continue
        try:
            parts.append(Part(name, columns, read()))
        except (OncepoolError, redis.RedisError, OSError) as error:
            parts.append(Part(name, columns, [], mask_url(str(error))))
    if not parts:
        raise ConfigError("nothing to ask: set kafka_topics, database_url or redis_url")
    return parts


def _instances(settings: Settings) -> list[dict[str, Any]]:
    with connect_redis(settings.redis_url) as client:
        return instances(client, settings.redis_prefix)


def _counts(settings: Settings, minutes: int) -> list[dict[str, Any]]:
    with connect(settings) as connection:
        since = datetime.now(UTC) - timedelta(minutes=minutes)
        return operators.stats(connection, since, schema=settings.database_schema)


def render(parts: list[Part]) -> Group:
    """The tables of all parts."""
    shown: list[Table | Text] = []
    for part in parts:
        if part.problem is not None:
            shown.append(Text(f"{part.name}: {part.problem}", style="red"))
            continue
        table = Table(
            *part.columns, title=part.name, title_justify="left", box=None, pad_edge=False
        )
        for row in part.rows:
            table.add_row(*(Text(as_cell(row.get(column))) for column in part.columns))
        shown.append(table)
        shown.append(Text(""))
    return Group(*shown)
