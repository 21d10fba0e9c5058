"""``oncepool prune``."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from consumer.admin.journal import connect
from consumer.admin.kafka_admin import retention_problems
from consumer.admin.moving import StatusPublisher
from consumer.commands.operator import YesOption, confirm
from consumer.commands.options import DATABASE, KAFKA, REDIS, JsonOption, past, with_settings
from consumer.commands.output import counted, fail, print_json, print_table, warn
from consumer.config.settings import Settings
from feedback.journal.connections import Connection, database_now
from feedback.operations.prune import SHARE, TABLES, pages, prunable
from feedback.operations.prune import prune as prune_journal

app = typer.Typer()

OlderThanOption = Annotated[
    str,
    typer.Option(
        envvar="ONCEPOOL_PRUNE_OLDER_THAN",
        metavar="TIME",
        help="What ended before: an age (30d, 12h) or a time (2026-05-01T12:00Z).",
    ),
]
WindowOption = Annotated[
    str,
    typer.Option(
        envvar="ONCEPOOL_PRUNE_RESEND_WINDOW",
        metavar="AGE",
        help="How long after a request's message producers may send it again.",
    ),
]
DryRunOption = Annotated[
    bool,
    typer.Option("--dry-run", envvar="ONCEPOOL_PRUNE_DRY_RUN", help="Only count; delete nothing."),
]
ShareOption = Annotated[
    int,
    typer.Option(
        envvar="ONCEPOOL_PRUNE_SHARE",
        metavar="PERCENT",
        min=1,
        max=100,
        help="Percent of its time that it deletes; it pauses for the rest (100: no pauses).",
    ),
]
# Without a twin in the environment: a forgotten variable must not have requests run twice.
ForceOption = Annotated[
    bool,
    typer.Option("--force", help="Also where a request that is sent again would run twice."),
]

_PERCENT = round(100 * SHARE)
_STAY = (
    "Statuses of deleted requests may stand in Redis until their time to live is over (an hour,"
    " or their type's status_ttl): until then, who uses an id anew may be told what became of it"
    " before"
)


@app.command()
@with_settings(*KAFKA, *DATABASE, *REDIS)
def prune(
    settings: Settings,
    *,
    older_than: OlderThanOption,
    resend_window: WindowOption = "1d",
    dry_run: DryRunOption = False,
    share: ShareOption = _PERCENT,
    force: ForceOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Delete requests that ended long ago, with timeline and status, and what else is of no use.

    Never what waits, runs, is in doubt or dead. An id that was deleted is new again, so it refuses,
    exit code 1, a TIME within the topics' retention and the time in which producers send again.
    """
    schema, here = settings.database_schema, datetime.now(UTC)
    window = here - past("--resend-window", resend_window, here)
    with connect(settings) as connection:
        # Rows have the times of its clock: by one that is ahead, those of just now would be old.
        now = database_now(connection)
        before = past("--older-than", older_than, now)
        warnings = _warned(settings, now - before, window, unasked=dry_run or force)
        # To count takes a look at every row: that is for who is asked.
        rows = prunable(connection, before, schema=schema) if dry_run or not yes else {}
        if not dry_run and (yes or _confirmed(rows, before)):

            def told(problem: str) -> None:
                warnings.append(problem)
                warn(problem)

            with StatusPublisher(settings, told, otherwise=_STAY) as statuses:
                rows = _prune(connection, before, schema, share / 100, statuses)
    if json:
        print_json(
            {
                "before": before,
                "dry_run": dry_run,
                "rows": rows,
                "warnings": warnings,
            }
        )
    else:
        title = "would be deleted" if dry_run else "deleted"
        print_table(("table", title), rows.items())


def _warned(settings: Settings, age: timedelta, window: timedelta, *, unasked: bool) -> list[str]:
    """What there is to say about pruning at that age; without `unasked` it may end the command."""
    problems = retention_problems(settings, age, window)
    for problem in problems:
        warn(problem)
    if not unasked and problems:
        fail(
            "nothing was deleted: requests could run a second time. Choose an earlier TIME, or add"
            " --force where you know that nobody sends or reads them again"
        )
    return problems


def _confirmed(rows: Mapping[str, int], before: datetime) -> bool:
    """Whether there is anything to delete; then whoever does not agree has ended the command."""
    if not any(rows.values()):
        return False
    when = before.isoformat(sep=" ", timespec="minutes")
    what = counted(rows["requests"], "request")
    confirm(f"delete {what} that ended before {when}?", yes=False)
    return True


def _prune(
    connection: Connection, before: datetime, schema: str, share: float, statuses: StatusPublisher
) -> dict[str, int]:
    from rich.console import Console
    from rich.progress import Progress

    deleted = Counter(dict.fromkeys(TABLES, 0))
    total = sum(pages(connection, schema=schema).values())
    with Progress(
        console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()
    ) as bar:
        task = bar.add_task("pruning", total=total)
        for step in prune_journal(connection, before, schema=schema, share=share):
            if step.ids:
                statuses.drop(step.ids, step.at)
            deleted.update(step.deleted)
            bar.update(
                task,
                advance=step.pages,
                description=f"{counted(deleted['requests'], 'request')} deleted",
            )
    return dict(deleted)
