"""``oncepool stats``: instances, limits, lag, what waits and how requests ended."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from consumer.admin.limits import described
from consumer.admin.overview import Look, Row, look
from consumer.commands.limits import TYPES as LIMIT
from consumer.commands.options import DATABASE, KAFKA, REDIS, JsonOption, with_settings
from consumer.commands.output import as_cell, print_json, say
from consumer.commands.stats_screen import Scroll, keys, window
from consumer.config.settings import Settings

app = typer.Typer()

REFRESH = 2.0
TEN_YEARS = 10 * 366 * 24 * 60
INSTANCE = (
    "id", "host", "version", "workers", "workers_free", "joined", "assigned", "paused", "in_hand",
    "queued", "running", "lost_at_commit", "read_again", "age",
)  # fmt: skip
TOPIC = ("topic", "partitions", "waiting")
TYPE = ("type", "rate", "done_hour", "done_day", "waiting", "due", "oldest", "overdue")
OUTBOX = ("type", "sender", "state", "n", "oldest")
COUNT = ("type", "state", "code", "n")
LEAVE_OUT = (
    "host", "version", "paused", "queued", "joined", "lost_at_commit", "read_again", "overdue",
)  # fmt: skip
"""Columns that go first where the terminal is narrow; --json has them all."""
GAP = 2
WIDE = 10_000
AGES = frozenset({"age", "oldest", "overdue"})


@app.command()
@with_settings(*KAFKA, "kafka_group", *DATABASE, *REDIS, "outbox_database_url", "outbox_schema")
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
            envvar="ONCEPOOL_STATS_MINUTES",
            metavar="N",
            min=1,
            max=TEN_YEARS,
            help="Outcomes of so many minutes.",
        ),
    ] = 60,
    json: JsonOption = False,
) -> None:
    """Show instances with their load, limits, what waits, and how requests ended lately.

    Shows what the configured services tell; exit code 1 when none of them answers.
    """
    if watch and json:
        raise typer.BadParameter("--watch is for people: leave out --json")
    if watch:
        _watch(settings, minutes)
        return
    found = look(settings, minutes)
    if json:
        print_json(as_json(found))
        for name, problem in found.problems.items():
            say(f"{name}: {problem}")
    else:
        console = _console()
        console.print(render(found, console.width))
    if found.blind:
        raise typer.Exit(1)


def _watch(settings: Settings, minutes: int) -> None:
    console = _console()
    live = Live(console=console, screen=console.is_terminal, auto_refresh=False)
    stopping = threading.Event()
    scroll = Scroll()

    def stop(*_: object) -> None:
        if stopping.is_set():
            raise KeyboardInterrupt  # a look that waits for a service is not waited for twice
        stopping.set()

    # Not as an exception: one that comes while the screen is drawn would leave it as it is.
    before = signal.signal(signal.SIGINT, stop)
    try:
        with keys() as wait:
            while not stopping.is_set():
                began = time.monotonic()
                picture = render(look(settings, minutes), console.width)
                live.start()
                # A look that takes long must not become all that the services do.
                due = time.monotonic() + max(REFRESH, time.monotonic() - began)
                while not stopping.is_set() and time.monotonic() < due:
                    shown = window(console, picture, scroll) if console.is_terminal else picture
                    live.update(shown, refresh=True)
                    match wait(due - time.monotonic(), stopping.is_set):
                        case "quit":
                            stopping.set()
                        case str(key):
                            scroll.key(key)
    finally:
        live.stop()
        signal.signal(signal.SIGINT, before)


def _console() -> Console:
    """As wide as the terminal; without one as wide as it has to be."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=WIDE)


def as_json(found: Look) -> Row:
    """One object; a source that did not answer is left out, and `problems` says why."""
    parts: Row = {"summary": found.summary()}
    if found.instances is not None and found.limits is not None:
        parts["instances"] = found.instances
        parts["limits"] = described(found.limits, found.instances)
    if found.topics is not None:
        parts["topics"] = found.topics
    if found.requests is not None and found.journal is not None:
        parts["requests"] = found.requests
        parts["postponed"] = found.postponed
        parts["types"] = found.journal.types
    if found.outbox is not None:
        parts["outbox"] = found.outbox
    parts["problems"] = found.problems
    return parts


def render(found: Look, width: int) -> Group:
    """All of it as tables that fit into so many columns of a terminal."""
    shown: list[RenderableType] = [_summary(found.summary())]
    shown += (Text(f"{name}: {problem}", style="red") for name, problem in found.problems.items())
    shown.append(Text(""))
    if found.instances is not None and found.limits is not None:
        shown += _table("instances", INSTANCE, found.instances, width)
        limits = described(found.limits, found.instances)
        workers = {name: limits[name] for name in ("workers", "workers_total") if limits[name]}
        if workers:
            shown.append(Text("limits: " + _pairs(workers.items())))
        if limits["types"]:
            rows = [{**row, "at_once": sum(row["at_once"].values())} for row in limits["types"]]
            shown += _table("limits", LIMIT, rows, width)
    if found.topics is not None:
        shown += _table("topics", TOPIC, found.topics, width)
    if found.journal is not None:
        shown += _table("types", TYPE, found.journal.types, width)
    if found.requests is not None:
        shown += _table("requests", COUNT, found.requests, width)
    if found.postponed:
        shown += _table("postponed", COUNT, found.postponed, width)
    if found.outbox:
        shown += _table("outbox", OUTBOX, found.outbox, width)
    return Group(*shown)


def _summary(summary: Row) -> Text:
    return Text(
        _pairs((name, _cell(name, n)) for name, n in summary.items() if n is not None), style="bold"
    )


def _pairs(items: Iterable[tuple[str, Any]]) -> str:
    return "   ".join(f"{name.replace('_', ' ')} {value}" for name, value in items)


def _table(
    title: str, columns: Sequence[str], rows: Iterable[Row], width: int
) -> list[RenderableType]:
    """Headings are broken at underscores, then columns left out, until it fits."""
    lines = [{column: _cell(column, row.get(column)) for column in columns} for row in rows]
    heading = dict(zip(columns, columns, strict=True))
    kept = list(columns)
    if _width(kept, heading, lines) > width:
        heading = {column: column.replace("_", "\n") for column in columns}
    for column in LEAVE_OUT:
        if column in kept and _width(kept, heading, lines) > width:
            kept.remove(column)
    missing = [column for column in columns if column not in kept]
    shown = f"{title} (too narrow for {', '.join(missing)})" if missing else title
    table = Table(title=shown, title_justify="left", box=None, pad_edge=False)
    for column in kept:
        table.add_column(heading[column], no_wrap=True)
    for line in lines:
        table.add_row(*(Text(line[column]) for column in kept))
    return [table, Text("")]


def _width(columns: Iterable[str], heading: dict[str, str], lines: Iterable[Row]) -> int:
    parts = {c: max(map(len, heading[c].split("\n"))) for c in columns}
    for line in lines:
        parts = {column: max(n, len(line[column])) for column, n in parts.items()}
    return sum(parts.values()) + GAP * (len(parts) - 1)


def _cell(column: str, value: Any) -> str:
    if column == "type" and value == "":
        return "(none)"  # of messages without one
    if value is not None and column in AGES:
        return age(value)
    return f"{value:.1f}/s" if column == "rate" else as_cell(value)


def age(seconds: float) -> str:
    """As people say it: 0.4 s, 12 s, 5 min, 3 h, 2 d."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
