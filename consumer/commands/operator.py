"""What commands share that move requests: who and why, the question before many, the statuses."""

from __future__ import annotations

import getpass
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn, TypeVar

import typer

from consumer.admin.move_outcome import MoveOutcome
from consumer.admin.moving import StatusPublisher, as_row
from consumer.commands.output import (
    EXIT_FAILED,
    EXIT_NO_ANSWER,
    EXIT_REFUSED,
    EXIT_UNKNOWN,
    fail,
    print_json,
    print_table,
    say,
    warn,
    with_bar,
)
from consumer.config.settings import Settings
from feedback.errors import OncepoolError
from feedback.operations.request_actions import AT_ONCE, By, TransitionOutcome

T = TypeVar("T")
Move = Callable[[Sequence[str]], TransitionOutcome]

SHOWN = 20
"""Requests that are named one by one; of more than these only their number is told."""

WhoOption = Annotated[
    str | None,
    typer.Option(
        envvar="ONCEPOOL_WHO", metavar="NAME", help="Who does it; without it the user and host."
    ),
]
WhyOption = Annotated[
    str | None,
    typer.Option(
        envvar="ONCEPOOL_WHY", metavar="TEXT", help="Why; kept, and told to the producer."
    ),
]
YesOption = Annotated[
    bool, typer.Option("--yes", "-y", envvar="ONCEPOOL_YES", help="Don't ask, do it.")
]


def by(who: str | None, why: str | None) -> By:
    """The operator."""
    return By(who or f"{_user()}@{socket.gethostname()}", why)


def confirm(question: str, *, yes: bool) -> None:
    """Goes on only where the answer is yes; nothing was changed otherwise."""
    if yes:
        return
    if not interactive():
        raise typer.BadParameter(
            f"{question} There is nobody to ask here: add --yes. Nothing was changed"
        )
    if not typer.confirm(question, err=True):
        fail("nothing was changed")


def interactive() -> bool:
    """Whether somebody sits at the terminal."""
    return sys.stdin.isatty()


def one_of(ids: Sequence[str], filters: dict[str, Any], *, everything: bool = False) -> bool:
    """Whether ids are given, rather than filters. Raises typer.BadParameter for both or none."""
    named = [name for name, value in filters.items() if value is not None]
    if everything:
        named.append("all")
    if ids and named:
        raise typer.BadParameter(f"give ids or filters (--{named[0]}), not both")
    if not ids and not named:
        raise typer.BadParameter("say which: ids, or filters")
    return bool(ids)


def batches(items: Sequence[T], doing: str) -> Iterator[Sequence[T]]:
    """Parts of a size that one statement takes; with a progress bar where somebody looks."""
    each = list(dict.fromkeys(items))
    parts = [each[start : start + AT_ONCE] for start in range(0, len(each), AT_ONCE)]
    if len(parts) < 2 or not sys.stderr.isatty():
        yield from parts
        return
    yield from with_bar(parts, doing)


def publisher_of(settings: Settings) -> StatusPublisher:
    """Writes statuses; what is wrong is said on standard error."""
    return StatusPublisher(settings, warn)


@contextmanager
def told(moves: MoveOutcome, doing: str, *, json: bool) -> Iterator[None]:
    """Where it breaks off, says first what was done until then, and what is not known."""
    try:
        yield
    except OncepoolError as error:
        moves.broke_off(error)
        if not (moves.rows or moves.refused or moves.unsure):
            raise
        _show(moves, doing, json=json)
        _fail(moves)


def move_all(
    ids: Sequence[str], doing: str, move: Move, publisher: StatusPublisher, moves: MoveOutcome
) -> None:
    """Moves requests, part by part, and publishes their statuses: `moves` has what became of it."""
    moves.plan(ids)
    for batch in batches(ids, doing):
        moves.begin(batch, whole=True)
        outcome = move(batch)
        moves.done([as_row(one) for one in outcome.moved], outcome.refused)
        publisher.publish(one.status() for one in outcome.moved)


def report(moves: MoveOutcome, doing: str, *, json: bool) -> None:
    """Says what was moved and what was refused, and ends with the exit code for it."""
    _show(moves, doing, json=json)
    if moves.problem:
        _fail(moves)
    if moves.late:
        raise typer.Exit(EXIT_NO_ANSWER)
    if any(one.state is not None for one in moves.refused):
        raise typer.Exit(EXIT_REFUSED)
    if moves.refused:
        raise typer.Exit(EXIT_UNKNOWN)


def _show(moves: MoveOutcome, doing: str, *, json: bool) -> None:
    rows, left = moves.rows, [*moves.refused, *moves.late]
    if json:
        broken = {"unsure": moves.unsure, "untried": moves.untried, "problem": moves.problem}
        shown: dict[str, Any] = {"moved": rows, "refused": [one._asdict() for one in left]}
        print_json(shown | broken if moves.problem else shown)
    elif len(rows) > SHOWN:
        typer.echo(f"{doing}: {len(rows)}")
    elif rows:
        names = [name for name in rows[0] if name not in ("attempt", "at", "due_at")]
        columns = [name for name in names if any(row[name] is not None for row in rows)]
        print_table(columns, ([row[name] for name in columns] for row in rows))
    complain([f"{one.id}: {one.reason}" for one in left])


def _fail(moves: MoveOutcome) -> NoReturn:
    """Ends with what is not known, and why."""
    complain([f"{name}: not known whether it was moved; look at it again" for name in moves.unsure])
    if moves.untried:
        complain([f"{len(moves.untried)} were not tried"])
    fail(moves.problem, EXIT_FAILED)


def complain(problems: Sequence[str]) -> None:
    """The first of them one by one, the others by their number."""
    for problem in problems[:SHOWN]:
        say(problem)
    if len(problems) > SHOWN:
        say(f"and {len(problems) - SHOWN} more")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
