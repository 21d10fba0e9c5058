"""``oncepool requests``: rows of the journal, and what moves them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from consumer.admin.journal import connect
from consumer.admin.moving import is_running
from consumer.admin.plain_json import as_shown
from consumer.admin.running import running_now
from consumer.commands import request_actions
from consumer.commands.options import DATABASE, REDIS, JsonOption, moment, not_empty, with_settings
from consumer.commands.output import (
    EXIT_FAILED,
    EXIT_UNKNOWN,
    MOST,
    header_texts,
    print_json,
    print_listing,
    print_table,
    say,
    warn,
)
from consumer.config.settings import Settings
from feedback.contract.states import State
from feedback.errors import StoreUnavailable
from feedback.journal.connections import Connection
from feedback.operations import request_reads
from feedback.operations.follow_ups import follow_ups_of
from feedback.operations.request_reads import Row, matches

app = typer.Typer(no_args_is_help=True)

COLUMNS = ("id", "type", "state", "code", "attempt", "run", "resends", "due_at", "finished_at",
           "superseded_by", "reason", "error")  # fmt: skip
WHERE_ANY = ("due_at", "finished_at", "superseded_by", "reason", "error")
RUNNING = ("id", "type", "state", "attempt", "instance", "worker", "since")
ATTEMPTS = ("run", "code", "error", "started_at", "ended_at")
FOLLOW_UPS = ("id", "type", "state", "code")
MOST_FOLLOW_UPS = 1000
TRANSITIONS = ("at", "action", "from_state", "to_state", "run", "who", "why")


@app.callback()
def requests() -> None:
    """Rows of the journal."""


RowState = Literal[
    "running", "waiting", "failed", "in_doubt", "dead", "cancelled", "done", "rejected",
    "superseded",
]  # fmt: skip
"""States that rows have: what is only `accepted` has none."""
StateOption = Annotated[
    RowState | None, typer.Option(envvar="ONCEPOOL_LIST_STATE", help="Only in this state.")
]
TypeOption = Annotated[
    str | None,
    typer.Option(
        "--type",
        envvar="ONCEPOOL_LIST_TYPE",
        callback=not_empty,
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
    int,
    typer.Option(
        envvar="ONCEPOOL_LIST_LIMIT", metavar="N", min=1, max=MOST, help="At most so many."
    ),
]


@app.command("list")
@with_settings(*DATABASE, *REDIS)
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
    """List requests, newest first; `--state running` shows what runs where, and since when.

    Exit code 1 where that is asked and Redis is away: most of what runs is known there alone.
    """
    filters = {
        "state": state,
        "type": type_,
        "since": moment(since),
        "key": key,
        "reference": reference,
    }
    with connect(settings) as connection:
        rows = request_reads.list_requests(
            connection, filters, limit + 1, schema=settings.database_schema
        )
    if state == "running":
        running = _running(settings)
        rows = with_running(rows, running or [], filters)
        print_listing([as_shown(row) for row in rows], RUNNING, limit, json=json)
        if running is None:
            raise typer.Exit(EXIT_FAILED)
        return
    shown = [as_shown(row) for row in rows]
    if not json:
        # What does not wait keeps the time at which it was due last.
        shown = [row if row["state"] == State.WAITING else {**row, "due_at": None} for row in shown]
    print_listing(shown, COLUMNS, limit, json=json, where_any=WHERE_ANY)


@app.command()
@with_settings(*DATABASE, *REDIS)
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
        found = {name: _whole(connection, name, settings.database_schema) for name in ids}
    rows = [as_shown(row) for row in found.values() if row is not None]
    missing = [name for name, row in found.items() if row is None]
    if json:
        print_json(rows)
    else:
        for row in rows:
            print_request(row)
    at_work = {one["request_id"]: one for one in _running(settings) or []} if missing else {}
    for name in missing:
        reason = is_running(at_work[name]) if name in at_work else "the journal has no such request"
        say(f"{name}: {reason}")
    if missing:
        raise typer.Exit(EXIT_UNKNOWN)


for command in (request_actions.retry, request_actions.cancel, request_actions.resolve):
    app.command()(command)


def _whole(connection: Connection, id: str, schema: str) -> Row | None:
    """A row, its timeline, and who asked for what."""
    row = request_reads.show_request(connection, id, schema=schema)
    if row is None:
        return None
    asked = follow_ups_of(connection, id, MOST_FOLLOW_UPS, schema=schema)
    if asked.more:
        warn(f"{id}: only {MOST_FOLLOW_UPS:,} of its follow-ups are shown")
    return {**row, "follow_ups": asked.asked_for}


def _running(settings: Settings) -> list[Row] | None:
    """What runs right now; where Redis is away that is said, and None returned."""
    try:
        return running_now(settings)
    except StoreUnavailable as error:
        warn(str(error))
        return None


def with_running(rows: list[Row], running: list[Row], filters: dict[str, Any]) -> list[Row]:
    """Rows of claims in the journal, and requests that run without a row, with where they run.

    A request has no row until it ends, unless it was claimed. Of those only the type is known, so
    with another filter they are left out.
    """
    where = {one["request_id"]: one for one in running if one["request_id"] is not None}
    places = ("instance", "worker", "since")
    shown = [
        {**row, **{name: where.get(row["id"], {}).get(name) for name in places}} for row in rows
    ]
    if any(filters[name] is not None for name in ("since", "key", "reference")):
        return shown
    known = {row["id"] for row in rows}
    wanted = filters["type"]
    for one in running:
        if one["request_id"] in known or not (wanted is None or matches(one["type"], wanted)):
            continue
        row = {"id": one["request_id"] or one["record"], "type": one["type"]}
        shown.append({**dict.fromkeys(COLUMNS), **row, **{n: one[n] for n in places},
                      "state": str(State.RUNNING)})  # fmt: skip
    return shown


def print_request(row: dict[str, Any]) -> None:
    """A row, column by column, and its timeline."""
    headers = ", ".join(f"{n}: {v}" for n, v in header_texts(row["headers"]))
    facts = {**row, "headers": headers or None}
    parts = (
        ("failed runs", ATTEMPTS, facts.pop("attempts")),
        ("moved by operators", TRANSITIONS, facts.pop("transitions")),
        ("follow-ups", FOLLOW_UPS, facts.pop("follow_ups", [])),
    )
    print_table(("column", "value"), ((n, v) for n, v in facts.items() if v is not None))
    raised = [line["traceback"] for line in row["attempts"] if line.get("traceback")]
    for title, columns, lines in parts:
        if lines:
            typer.echo(f"\n{title}")
            print_table(columns, ([line[c] for c in columns] for line in lines))
        if lines is row["attempts"] and raised:
            typer.echo(f"\n{raised[-1]}")
    typer.echo()
