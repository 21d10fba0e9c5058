"""Requests that the journal has no row of, and that a status or the outbox knows: in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from consumer.gateway.sending import UNSENT
from consumer.gateway.statuses import Statuses
from feedback.contract.states import State
from feedback.operations.explanations import Refusal
from feedback.status.status import Status

_IN_OUTBOX: Final = {
    UNSENT: "is in the outbox, and a relay has not sent it: see that `oncepool relay` runs",
    "sent": "is in the outbox, and was sent: no consumer has said anything of it yet",
    "unanswered": "is in the outbox, and no consumer has answered it: `oncepool outbox retry` sends"
    " it again",
    "undeliverable": "is in the outbox, and could not be sent: `oncepool outbox retry` sends it"
    " again",
}
"""Code of an accepted request -> how it stands."""
_ROWLESS: Final = "it has no row in the journal to be moved"


def standing(status: Status) -> str:
    """How it stands, where only what has been sent is known of it; "" where consumers told."""
    if status.state is not State.ACCEPTED:
        return ""
    return _IN_OUTBOX.get(status.code, "was sent, and no consumer has said anything of it yet")


async def explained(
    statuses: Statuses, refused: Sequence[Refusal], may_see: Callable[[str], bool]
) -> list[Refusal]:
    """The same; of those that are unknown to the journal, how they stand where that is known.

    Raises OncepoolError where one of them is not known and not all have answered.
    """
    names = [one.id for one in refused if one.state is None]
    found = await statuses.read(names) if names else []
    known = {
        one.id: Refusal(one.id, one.state, _without_row(one))
        for one in found
        if one is not None and not one.of_no_request and may_see(one.type)
    }
    return [known.get(one.id, one) if one.state is None else one for one in refused]


def _without_row(status: Status) -> str:
    said = standing(status) or f"is {status.state}/{status.code}"
    return f"{said}; {_ROWLESS}{'' if status.settled else ' yet'}"
