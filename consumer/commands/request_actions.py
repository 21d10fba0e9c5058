"""``oncepool requests retry``, ``cancel`` and ``resolve``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, Literal

import typer

from consumer.admin.cancelling import Cancelled, Withdraw
from consumer.admin.journal import connect
from consumer.admin.move_outcome import MoveOutcome
from consumer.admin.moving import (
    DOUBT,
    Ending,
    Transition,
    end_running,
    explain_those_known,
    wants_results,
)
from consumer.commands.operator import (
    WhoOption,
    WhyOption,
    YesOption,
    by,
    complain,
    confirm,
    move_all,
    one_of,
    publisher_of,
    report,
    told,
)
from consumer.commands.options import DATABASE, REDIS, JsonOption, moment, not_empty, with_settings
from consumer.commands.output import EXIT_USAGE, counted, fail
from consumer.config.settings import Settings
from feedback.contract.states import State
from feedback.errors import OncepoolError
from feedback.journal.connections import Connection
from feedback.operations import request_actions as actions
from feedback.operations.explanations import Refusal
from feedback.operations.operator_changes import note_ended_runs, that_ran
from feedback.operations.request_actions import RETRYABLE, By, ResultRefused
from feedback.operations.request_reads import Row, select_ids

Order = Callable[[Connection, Sequence[str]], Sequence[str]]
EndRunning = Callable[[Sequence[Refusal], Withdraw], Cancelled]
"""Ends those of the refused requests that run."""

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID...]", help="Request ids.")]


def _filter(name: str, command: str, metavar: str, help_: str) -> Any:
    return typer.Option(
        f"--{name}",
        envvar=f"ONCEPOOL_{command}_{name.upper()}",
        callback=not_empty if name == "type" else None,
        metavar=metavar,
        help=help_,
    )


TYPE_HELP = "Those of this type; * stands for anything."
SINCE_HELP = "Those that ended since: an age (30m, 2h, 7d) or a time (2026-05-01T12:00Z)."
MADE_HELP = "Those made since: an age (30m, 2h, 7d) or a time (2026-05-01T12:00Z)."
KEY_HELP = "Those with this key."
REFERENCE_HELP = "Those with this reference."


RunOption = Annotated[
    int | None,
    typer.Option(
        envvar="ONCEPOOL_RESOLVE_RUN",
        min=0,
        max=2**31 - 1,
        help="The run that this is true of: another one stays as it is.",
    ),
]


@with_settings(*DATABASE, *REDIS)
def retry(
    settings: Settings,
    *,
    ids: Ids = None,
    state: Annotated[
        Literal["dead", "failed", "cancelled"] | None,
        typer.Option(envvar="ONCEPOOL_RETRY_STATE", help="Those in this state; dead unless given."),
    ] = None,
    type_: Annotated[str | None, _filter("type", "RETRY", "TYPE", TYPE_HELP)] = None,
    since: Annotated[str | None, _filter("since", "RETRY", "TIME", SINCE_HELP)] = None,
    key: Annotated[str | None, _filter("key", "RETRY", "KEY", KEY_HELP)] = None,
    reference: Annotated[str | None, _filter("reference", "RETRY", "REF", REFERENCE_HELP)] = None,
    who: WhoOption = None,
    why: WhyOption = None,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Run dead, failed or cancelled requests again, now: by their ids, or all that filters find.

    Exit code 4 when an id is unknown, 6 when one is in a state that can't be retried.
    """
    filters: dict[str, Any] = {
        "state": state,
        "type": type_,
        "since": moment(since),
        "key": key,
        "reference": reference,
    }
    states: tuple[State, ...] = RETRYABLE
    if not one_of(ids or (), filters):
        filters["state"] = state or "dead"
        states = (State(filters["state"]),)
    schema = settings.database_schema
    move = partial(actions.retry, by=by(who, why), states=states, schema=schema)
    order = partial(actions.in_retry_order, schema=schema)
    _move(settings, ids, filters, move, "retry", yes=yes, json=json, order=order)


@with_settings(*DATABASE, *REDIS, "kafka_results_topic")
def cancel(
    settings: Settings,
    *,
    ids: Ids = None,
    type_: Annotated[str | None, _filter("type", "CANCEL", "TYPE", TYPE_HELP)] = None,
    since: Annotated[str | None, _filter("since", "CANCEL", "TIME", MADE_HELP)] = None,
    key: Annotated[str | None, _filter("key", "CANCEL", "KEY", KEY_HELP)] = None,
    reference: Annotated[str | None, _filter("reference", "CANCEL", "REF", REFERENCE_HELP)] = None,
    wait: Annotated[
        float,
        typer.Option(
            envvar="ONCEPOOL_CANCEL_WAIT",
            metavar="SECONDS",
            min=0,
            help="How long to wait for the end of those that run.",
        ),
    ] = 20.0,
    who: WhoOption = None,
    why: WhyOption = None,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Take requests out of the queue: by their ids, or all that wait and filters find.

    What is given by its id and runs is ended, as at its timeout. Exit code 4 when an id is unknown,
    5 when one that runs has not ended in time, 6 when one neither waits nor runs; it stays as it
    is.
    """
    filters = {"type": type_, "since": moment(since), "key": key, "reference": reference}
    by_ids = one_of(ids or (), filters)
    operator = by(who, why)
    move = partial(
        actions.cancel,
        by=operator,
        schema=settings.database_schema,
        results=wants_results(settings),
    )
    ending = partial(_end_running, settings, ending=Ending(wait), by=operator)
    _move(settings, ids, {**filters, "state": "waiting"}, move, "cancel", yes=yes, json=json,
          ending=ending if by_ids else None)  # fmt: skip


@with_settings(*DATABASE, *REDIS, "kafka_results_topic")
def resolve(
    settings: Settings,
    *,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Request ids.")],
    as_: Annotated[
        Literal["done", "failed", "retry"],
        typer.Option(
            "--as",
            envvar="ONCEPOOL_RESOLVE_AS",
            help="What is true: its effect happened, it did not, or it did not and it runs again.",
        ),
    ],
    result: Annotated[
        str | None,
        typer.Option(
            envvar="ONCEPOOL_RESOLVE_RESULT", metavar="JSON", help="The result, with --as done."
        ),
    ] = None,
    run: RunOption = None,
    who: WhoOption = None,
    why: WhyOption = None,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Settle requests in doubt, once you know whether their external effect happened.

    Exit code 4 when an id is unknown, 6 when one is not in doubt.
    """
    if result is not None and as_ != "done":
        raise typer.BadParameter("--result goes with --as done")
    if run is not None and len(ids) != 1:
        raise typer.BadParameter("--run goes with one ID")
    move = partial(
        actions.resolve,
        resolution=as_,
        by=by(who, why),
        result=None if result is None else result.encode(),
        runs=None if run is None else {ids[0]: run},
        schema=settings.database_schema,
        results=wants_results(settings),
    )
    try:
        _move(settings, ids, {}, move, "resolve", yes=yes, json=json)
    except ResultRefused as error:
        fail(str(error), EXIT_USAGE)


def _move(
    settings: Settings,
    ids: Sequence[str] | None,
    filters: dict[str, Any],
    move: Transition,
    doing: str,
    *,
    yes: bool,
    json: bool,
    order: Order | None = None,
    ending: EndRunning | None = None,
) -> None:
    """`order`: in which they are moved; `ending`: what is done about those refused as they run."""
    moves = MoveOutcome()
    with told(moves, doing, json=json), connect(settings) as connection:
        if not ids:
            ids = select_ids(connection, filters, schema=settings.database_schema)
            if ids:
                asked = f"{doing} {counted(len(ids), 'request')} ({_described(filters)})?"
                confirm(asked, yes=yes)
            else:
                typer.echo(f"there is none ({_described(filters)})", err=True)
        if order is not None:
            ids = order(connection, ids)
        with publisher_of(settings) as publisher:
            mover = partial(
                move_all, doing=doing, move=partial(move, connection), publisher=publisher
            )
            mover(ids, moves=moves)
            if ending is not None and moves.refused:
                _end(ending, moves, mover)
    moves.refused = explain_those_known(settings, moves.refused)
    report(moves, doing, json=json)


def _end(ending: EndRunning, moves: MoveOutcome, mover: Callable[..., None]) -> None:
    """Those of the refused that run come to an end."""

    def withdraw(ids: Sequence[str]) -> list[Row]:
        """What waits by now is moved after all."""
        part = MoveOutcome()
        try:
            mover(ids, moves=part)
        finally:
            moves.withdrew(part.rows)
        return part.rows

    moves.ended(ending(moves.end_those_that_run(), withdraw))


def _end_running(
    settings: Settings, refused: Sequence[Refusal], withdraw: Withdraw, *, ending: Ending, by: By
) -> Cancelled:
    """Those of the refused that run come to an end, and it is said what happens to them."""
    ended = end_running(settings, refused, withdraw, ending, by, lambda said: complain([said]))
    if ran := that_ran(ended.rows):
        try:
            with connect(settings) as journal:
                note_ended_runs(journal, ran, by, schema=settings.database_schema)
        except OncepoolError as error:
            complain([f"warning: who ended what ran is not in the audit: {error}"])
    doubtful = [row["id"] for row in ended.rows if row["state"] == State.IN_DOUBT]
    complain([f"{name}: {DOUBT}" for name in doubtful])
    return ended


def _described(filters: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in filters.items() if value is not None)
