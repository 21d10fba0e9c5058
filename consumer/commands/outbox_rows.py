"""``oncepool outbox list``, ``retry``, ``drop``, ``prune`` and ``stats``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from typing import Annotated

import typer

from consumer.admin.move_outcome import MoveOutcome
from consumer.admin.outbox import outbox_operator
from consumer.commands.operator import YesOption, batches, confirm, one_of, report, told
from consumer.commands.options import JsonOption, not_empty, past, with_settings
from consumer.commands.output import MOST, fail, print_json, print_listing, print_table, say
from consumer.config.settings import Settings
from feedback.errors import OncepoolError
from feedback.operations.explanations import Refusal
from feedback.operations.request_reads import Row, pattern
from feedback.outbox.dead_letters import (
    COLUMNS,
    DEAD,
    Moving,
    OutboxFilter,
    OutboxOperator,
    Standing,
)

PLACE = ("outbox_database_url", "outbox_schema")
WHERE_ANY = ("code", "sent_at", "next_at", "reference", "error")
FIGURES = ("type", "sender", "state", "n", "oldest")


class OutboxState(StrEnum):
    """States of open rows."""

    UNSENT = "unsent"
    SENT = "sent"
    UNANSWERED = "unanswered"
    UNDELIVERABLE = "undeliverable"


Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID...]", help="Ids of requests.")]
StateOption = Annotated[
    OutboxState | None, typer.Option(envvar="ONCEPOOL_OUTBOX_STATE", help="Only in this state.")
]
TypeOption = Annotated[
    str | None,
    typer.Option(
        "--type",
        envvar="ONCEPOOL_OUTBOX_TYPE",
        callback=not_empty,
        metavar="TYPE",
        help="Only of this type; * stands for anything.",
    ),
]
SenderOption = Annotated[
    str | None,
    typer.Option(envvar="ONCEPOOL_OUTBOX_SENDER", metavar="NAME", help="Only of this sender."),
]
LimitOption = Annotated[
    int,
    typer.Option(
        envvar="ONCEPOOL_OUTBOX_LIMIT", metavar="N", min=1, max=MOST, help="At most so many."
    ),
]
# Without a twin in the environment: a forgotten variable must not move everything.
AllOption = Annotated[bool, typer.Option("--all", help="All dead letters.")]
OlderThanOption = Annotated[
    str,
    typer.Option(
        envvar="ONCEPOOL_OUTBOX_OLDER_THAN",
        metavar="TIME",
        help="What ended before: an age (30d, 12h) or a time (2026-05-01T12:00Z).",
    ),
]
Move = Callable[[OutboxOperator, OutboxFilter, Moving], Iterator[Sequence[str]]]


@with_settings(*PLACE)
def list_(
    settings: Settings,
    *,
    state: StateOption = None,
    type_: TypeOption = None,
    sender: SenderOption = None,
    limit: LimitOption = 100,
    json: JsonOption = False,
) -> None:
    """List dead letters of the outbox, or with --state other open rows; the oldest first."""
    states = DEAD if state is None else (str(state),)
    wanted = OutboxFilter(states, None, pattern(type_) if type_ else None, sender)
    with outbox_operator(settings) as operator:
        rows = operator.rows(wanted, limit + 1)
    print_listing(rows, COLUMNS, limit, json=json, where_any=WHERE_ANY)


@with_settings(*PLACE)
def retry(
    settings: Settings,
    *,
    ids: Ids = None,
    state: StateOption = None,
    type_: TypeOption = None,
    sender: SenderOption = None,
    everything: AllOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Have dead letters of the outbox sent again, under their ids.

    What was last sent more than a day ago runs a second time where the consumers' journal has been
    pruned of it: look there first.
    """
    wanted = _wanted(ids, state, type_, sender, everything=everything)
    _warn_of_long_silence(settings, wanted)
    _move(settings, wanted, "retry", OutboxOperator.retry, yes=yes, json=json)


@with_settings(*PLACE, "outbox_inbox")
def drop(
    settings: Settings,
    *,
    ids: Ids = None,
    state: StateOption = None,
    type_: TypeOption = None,
    sender: SenderOption = None,
    everything: AllOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Give up dead letters of the outbox. Their ids stay taken, and their producer is told."""
    wanted = _wanted(ids, state, type_, sender, everything=everything)
    _move(settings, wanted, "drop", OutboxOperator.drop, yes=yes, json=json)


@with_settings(*PLACE)
def prune(
    settings: Settings,
    *,
    older_than: OlderThanOption,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Delete finished rows of the outbox that ended long ago. Their ids are new again then."""
    deleted = 0
    try:
        with outbox_operator(settings) as operator:
            before = past("--older-than", older_than, operator.now())
            confirm(f"delete finished rows that ended before {before:%Y-%m-%d %H:%M}?", yes=yes)
            for part in operator.prune_parts(before):
                deleted += part
    except OncepoolError as error:
        if not deleted:
            raise
        if json:
            print_json({"deleted": deleted, "problem": str(error)})
        fail(f"{error}; {deleted} rows were deleted before that")
    if json:
        print_json({"deleted": deleted})
    else:
        typer.echo(f"{deleted} deleted")


@with_settings(*PLACE)
def stats(settings: Settings, json: JsonOption = False) -> None:
    """Count open rows by type, sender and state, with the oldest of each."""
    with outbox_operator(settings) as operator:
        rows = operator.figures()
    if json:
        print_json(rows)
    else:
        print_table(FIGURES, ([row[name] for name in FIGURES] for row in rows))


def _wanted(
    ids: Sequence[str] | None,
    state: OutboxState | None,
    type_: str | None,
    sender: str | None,
    *,
    everything: bool,
) -> OutboxFilter:
    """Raises typer.BadParameter for ids and filters, for neither, and for no dead letters."""
    one_of(ids or (), {"state": state, "type": type_, "sender": sender}, everything=everything)
    if state is not None and state not in DEAD:
        raise typer.BadParameter(f"what is {state} is no dead letter: {' or '.join(DEAD)}")
    states = DEAD if state is None else (str(state),)
    return OutboxFilter(states, ids or None, pattern(type_) if type_ else None, sender)


def _move(
    settings: Settings, wanted: OutboxFilter, doing: str, move: Move, *, yes: bool, json: bool
) -> None:
    if wanted.ids is None:
        question = "send again" if doing == "retry" else "give up"
        confirm(f"{question} all dead letters of the outbox that fit?", yes=yes)
    moves = MoveOutcome()
    moves.plan(wanted.ids or ())
    with told(moves, doing, json=json), outbox_operator(settings) as operator:
        if wanted.ids is None:
            for moved in move(operator, wanted, partial(moves.begin, whole=True)):
                moves.done([{"id": id_} for id_ in moved], [])
        else:
            for batch in batches(wanted.ids, doing):
                moves.begin(batch, whole=True)
                moves.done(*_moved(operator, wanted._replace(ids=batch), move))
    if wanted.ids is None and not moves.rows:
        typer.echo("there is no such dead letter", err=True)
    report(moves, doing, json=json)


def _moved(
    operator: OutboxOperator, wanted: OutboxFilter, move: Move
) -> tuple[list[Row], list[Refusal]]:
    """What was moved of those that are named, and what was not, in one transaction."""
    with operator.transaction():
        moved = [id_ for part in move(operator, wanted, lambda _: None) for id_ in part]
        left = [id_ for id_ in wanted.ids or () if id_ not in set(moved)]
        standing = operator.standing(left)
    return [{"id": id_} for id_ in moved], [_refusal(id_, standing.get(id_)) for id_ in left]


def _warn_of_long_silence(settings: Settings, wanted: OutboxFilter) -> None:
    with outbox_operator(settings) as operator:
        number = operator.long_silent(wanted)
    if number:
        say(
            f"{number} were last sent more than a day ago: where the consumers' journal has been"
            " pruned of them since, they run a second time"
        )


def _refusal(id_: str, standing: Standing | None) -> Refusal:
    if standing is None:
        return Refusal(id_, None, "is unknown to the outbox")
    return Refusal(id_, standing.state, standing.why)
