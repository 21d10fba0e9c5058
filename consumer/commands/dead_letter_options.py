"""Which dead letters a command is about: filters, and names given by hand."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from consumer.commands.options import moment, not_empty
from feedback.contract.states import DeadLetterReason
from feedback.journal.connections import Connection
from feedback.operations.dead_letters import DeadLetterRef, kinds_of
from feedback.operations.explanations import Refusal


class DeadLetterKind(StrEnum):
    """The two kinds of dead letters."""

    MESSAGE = "message"
    REQUEST = "request"


NamesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ID...]", help="Numbers of messages, ids of requests."),
]
# Without a twin in the environment: a forgotten variable must not move everything.
AllOption = Annotated[bool, typer.Option("--all", help="All there are.")]
KindOption = Annotated[
    DeadLetterKind | None,
    typer.Option(
        envvar="ONCEPOOL_LETTERS_KIND",
        help="Only messages that could not become a request, or only dead requests.",
    ),
]
TypeOption = Annotated[
    str | None,
    typer.Option(
        "--type",
        envvar="ONCEPOOL_LETTERS_TYPE",
        callback=not_empty,
        metavar="TYPE",
        help="Only of this type; * stands for anything.",
    ),
]
ReasonOption = Annotated[
    str | None,
    typer.Option(
        envvar="ONCEPOOL_LETTERS_REASON",
        metavar="REASON",
        help=f"Only these: {' or '.join(DeadLetterReason)}, or the code of a request.",
    ),
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        envvar="ONCEPOOL_LETTERS_SINCE",
        metavar="TIME",
        help="Only those since: an age (30m, 2h, 7d) or a time (2026-05-01T12:00Z).",
    ),
]
SearchOption = Annotated[
    str | None,
    typer.Option(
        envvar="ONCEPOOL_LETTERS_SEARCH",
        metavar="TEXT",
        help="Only those with this text in id, type, reason, detail or payload.",
    ),
]


NONE_SUCH = (
    "there is no such dead letter: a message is named by its number (id), a dead request by its"
    " request_id"
)


def filters(
    kind: DeadLetterKind | None,
    type_: str | None,
    reason: str | None,
    since: str | None,
    search: str | None,
) -> dict[str, Any]:
    """What feedback.operations.dead_letters filters by."""
    return {
        "kind": None if kind is None else str(kind),
        "type": type_,
        "reason": reason,
        "since": moment(since),
        "search": search or None,
    }


def locate(
    connection: Connection, names: Sequence[str], kind: DeadLetterKind | None, *, schema: str
) -> tuple[list[DeadLetterRef], list[Refusal]]:
    """The entries of these names, and the names that none has.

    Raises typer.BadParameter for a name that a message and a request share.
    """
    places: list[DeadLetterRef] = []
    missing: list[Refusal] = []
    for name in dict.fromkeys(names):
        kinds = kinds_of(connection, name, schema=schema)
        if kind is not None:
            kinds = [one for one in kinds if one == kind]
        if len(kinds) > 1:
            raise typer.BadParameter(
                f"{name} is the number of a message and the id of a dead request: say which with"
                " --kind message or --kind request"
            )
        if kinds:
            places.append(DeadLetterRef(kinds[0], name))
        else:
            missing.append(Refusal(name, None, NONE_SUCH))
    return places, missing
