"""What ``oncepool dead-letters retry`` does with messages: a new id or type, or a resend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from consumer.commands.dead_letter_options import DeadLetterKind
from consumer.commands.options import not_empty

NewIdOption = Annotated[
    str | None,
    typer.Option(
        "--id", envvar="ONCEPOOL_LETTERS_ID", metavar="ID", help="The id that a message gets."
    ),
]
NewTypeOption = Annotated[
    str | None,
    typer.Option(
        "--type",
        envvar="ONCEPOOL_LETTERS_RETRY_TYPE",
        callback=not_empty,
        metavar="TYPE",
        help="With IDs the type that messages get, else those of this type (* stands for"
        " anything).",
    ),
]
ResendOption = Annotated[
    bool,
    typer.Option(
        "--resend",
        envvar="ONCEPOOL_LETTERS_RESEND",
        help="Send messages, and these alone, to their topics again as they were, for topics with"
        " a decoder.",
    ),
]


def options_for_messages(
    names: Sequence[str] | None,
    id: str | None,
    type: str | None,
    kind: DeadLetterKind | None,
    *,
    resend: bool,
) -> str | None:
    """Those of a retry that are given: a dead request keeps its id and type, and is not sent.

    Raises typer.BadParameter for those that do not go together.
    """
    if resend and (id is not None or type is not None):
        raise typer.BadParameter("--resend sends it as it was: leave out --id and --type")
    if id is not None and len(names or ()) != 1:
        raise typer.BadParameter("--id is for one message: name that one")
    if resend and kind is DeadLetterKind.REQUEST:
        raise typer.BadParameter("--resend is for messages: leave out --kind request")
    given = {"--id": id is not None, "--type": type is not None, "--resend": resend}
    return " and ".join(name for name, there in given.items() if there) or None
