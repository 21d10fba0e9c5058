"""``oncepool dead-letters retry`` and ``drop``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import typer

from consumer.admin.journal import connect
from consumer.admin.move_outcome import MoveOutcome
from consumer.admin.moving import as_row, wants_results
from consumer.commands.dead_letter_options import (
    AllOption,
    DeadLetterKind,
    KindOption,
    NamesArgument,
    ReasonOption,
    SearchOption,
    SinceOption,
    TypeOption,
    filters,
    locate,
)
from consumer.commands.dead_letter_retry_options import (
    NewIdOption,
    NewTypeOption,
    ResendOption,
    options_for_messages,
)
from consumer.commands.operator import (
    Move,
    WhoOption,
    WhyOption,
    YesOption,
    batches,
    by,
    confirm,
    move_all,
    one_of,
    publisher_of,
    report,
    told,
)
from consumer.commands.options import DATABASE, KAFKA, REDIS, JsonOption, with_settings
from consumer.commands.output import counted
from consumer.commands.resending import NotSent, NotTaken, Resender
from consumer.config.settings import Settings
from feedback.contract.states import State
from feedback.journal.connections import Connection
from feedback.operations import request_actions as actions
from feedback.operations.dead_letter_actions import (
    DEAD_LETTER,
    drop_letters,
    resend_letter,
    retry_letter,
)
from feedback.operations.dead_letters import DeadLetterRef, select_dead
from feedback.operations.dead_message import DeadMessage
from feedback.operations.explanations import Refusal
from feedback.operations.request_actions import By
from feedback.operations.request_reads import Row


@with_settings(*KAFKA, *DATABASE, *REDIS)
def retry(
    settings: Settings,
    *,
    names: NamesArgument = None,
    id_: NewIdOption = None,
    type_: NewTypeOption = None,
    resend: ResendOption = False,
    everything: AllOption = False,
    kind: KindOption = None,
    reason: ReasonOption = None,
    since: SinceOption = None,
    search: SearchOption = None,
    who: WhoOption = None,
    why: WhyOption = None,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Run dead requests again, and make requests of messages: by name, or all that filters find.

    A message that conflicts with a request needs --id. Exit code 4 when a name is unknown, 6 when
    something can't be retried; it stays in the list.
    """
    given = type_ if names else None
    for_messages = options_for_messages(names, id_, given, kind, resend=resend)
    if resend:
        settings.require("kafka_bootstrap_servers")
    chosen = filters(kind, None if names else type_, reason, since, search)
    moves = MoveOutcome()
    with told(moves, "retry", json=json), ExitStack() as stack:
        session = _DeadLetterSession(settings, stack, by(who, why), moves)
        places = session.places(
            names, chosen, kind, everything=everything, for_messages=for_messages
        )
        _ask(places, names, "retry", yes=yes)
        if resend:
            sender = stack.enter_context(Resender(settings))
            session.resend(_messages(places), sender)
        else:
            session.retry_messages(_messages(places), id_, given)
        session.retry_requests(_requests(places))
    report(moves, "retry", json=json)


@with_settings(*DATABASE, *REDIS, "kafka_results_topic")
def drop(
    settings: Settings,
    *,
    names: NamesArgument = None,
    everything: AllOption = False,
    kind: KindOption = None,
    type_: TypeOption = None,
    reason: ReasonOption = None,
    since: SinceOption = None,
    search: SearchOption = None,
    who: WhoOption = None,
    why: WhyOption = None,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Delete messages, and cancel dead requests, whose ids stay known: by name, or by filters.

    Exit code 4 when a name is unknown.
    """
    chosen = filters(kind, type_, reason, since, search)
    moves = MoveOutcome()
    with told(moves, "drop", json=json), ExitStack() as stack:
        session = _DeadLetterSession(settings, stack, by(who, why), moves)
        places = session.places(names, chosen, kind, everything=everything)
        _ask(places, names, "drop", yes=yes)
        session.drop_messages(_messages(places))
        session.drop_requests(_requests(places))
    report(moves, "drop", json=json)


class _DeadLetterSession:
    """What one call of a command does, and what became of it."""

    def __init__(
        self, settings: Settings, stack: ExitStack, operator: By, moves: MoveOutcome
    ) -> None:
        self._moves = moves
        self._by = operator
        self._schema = settings.database_schema
        self._results = wants_results(settings)
        self._connection: Connection = stack.enter_context(connect(settings))
        self._publisher = stack.enter_context(publisher_of(settings))

    def places(
        self,
        names: Sequence[str] | None,
        chosen: dict[str, Any],
        kind: DeadLetterKind | None,
        *,
        everything: bool,
        for_messages: str | None = None,
    ) -> list[DeadLetterRef]:
        """What the command is about; names that nothing has are refused.

        `for_messages`: options that are for messages alone. Raises typer.BadParameter where a dead
        request is named beside them; filters find none.
        """
        # A kind beside names says which of two things of one name is meant.
        narrowed = {**chosen, "kind": None} if names else chosen
        if one_of(names or (), narrowed, everything=everything):
            places, missing = locate(self._connection, names or (), kind, schema=self._schema)
            if for_messages and (requests := _requests(places)):
                raise typer.BadParameter(
                    f"{requests[0]} is a dead request, which runs again as it is: retry it without"
                    f" {for_messages}. Nothing was moved"
                )
            self._moves.refused += missing
        else:
            found = {**chosen, "kind": str(DeadLetterKind.MESSAGE)} if for_messages else chosen
            places = select_dead(self._connection, found, schema=self._schema)
        self._moves.plan(place.name for place in places)
        return places

    def retry_messages(self, numbers: Sequence[int], id: str | None, type: str | None) -> None:
        """Each becomes a request, in a transaction of its own."""
        for batch in batches(numbers, "retry"):
            for number in batch:
                self._moves.begin([number], whole=True)
                made = retry_letter(
                    self._connection, number, self._by, id=id, type=type, schema=self._schema
                )
                if isinstance(made, Refusal):
                    self._moves.done([], [made])
                else:
                    self._moves.done([as_row(made)], [])
                    self._publisher.publish([made.status()])

    def resend(self, numbers: Sequence[int], sender: Resender) -> None:
        """Each goes to its topic again. Raises NotSent where brokers do not answer."""

        def send(message: DeadMessage) -> None:
            self._moves.goes_out()
            sender.send(message)

        for batch in batches(numbers, "resend"):
            for number in batch:
                self._moves.begin([number], whole=True)
                try:
                    refusal = resend_letter(
                        self._connection, number, send, self._by, schema=self._schema
                    )
                except NotTaken as error:
                    refusal = Refusal(str(number), DEAD_LETTER, str(error))
                except NotSent:
                    self._moves.begin([])
                    raise
                if refusal is None:
                    self._moves.done([_row(number, "sent")], [])
                else:
                    self._moves.done([], [refusal])

    def drop_messages(self, numbers: Sequence[int]) -> None:
        """Deletes them."""
        for batch in batches(numbers, "drop"):
            self._moves.begin(batch, whole=True)
            missed = drop_letters(self._connection, batch, self._by, schema=self._schema)
            gone = sorted(set(batch) - {int(one.id) for one in missed})
            self._moves.done([_row(number, "dropped") for number in gone], missed)

    def retry_requests(self, ids: Sequence[str]) -> None:
        """Dead ones wait again."""
        ids = actions.in_retry_order(self._connection, ids, schema=self._schema)
        self._move(ids, "retry", lambda batch: actions.retry(
            self._connection, batch, self._by, states=(State.DEAD,), schema=self._schema
        ))  # fmt: skip

    def drop_requests(self, ids: Sequence[str]) -> None:
        """Dead ones are cancelled."""
        self._move(ids, "drop", lambda batch: actions.drop(
            self._connection, batch, self._by, schema=self._schema, results=self._results
        ))  # fmt: skip

    def _move(self, ids: Sequence[str], doing: str, move: Move) -> None:
        move_all(ids, doing, move, self._publisher, self._moves)


def _row(number: int, after: str) -> Row:
    """What is told of a message."""
    return {
        "id": str(number), "type": None, "from_state": DEAD_LETTER, "state": after, "code": None,
        "run": None,
    }  # fmt: skip


def _ask(
    places: Sequence[DeadLetterRef], names: Sequence[str] | None, doing: str, *, yes: bool
) -> None:
    if names:
        return
    if not places:
        typer.echo("there is no such dead letter", err=True)
        return
    messages = counted(len(_messages(places)), "message")
    requests = counted(len(_requests(places)), "request")
    letters = counted(len(places), "dead letter")
    confirm(f"{doing} {letters} ({messages}, {requests})?", yes=yes)


def _messages(places: Sequence[DeadLetterRef]) -> list[int]:
    return [int(place.name) for place in places if place.kind == "message"]


def _requests(places: Sequence[DeadLetterRef]) -> list[str]:
    return [place.name for place in places if place.kind == "request"]
