"""What operators change beside requests, kept with who and why.

Whoever changes something notes it here: in the same transaction where it stands in the journal,
afterwards where it stands elsewhere, as limits do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from feedback.journal.connections import Connection
from feedback.journal.queries import query
from feedback.operations.request_actions import By


class OperatorChange(NamedTuple):
    """One thing that was changed."""

    what: Literal["schedule", "limits", "dead_letter"]
    name: str
    """Of the schedule; the type that is limited, or `workers`; the number of the dead letter."""
    type: str | None
    """Whose business it is; None: of whoever is for all types."""
    action: Literal["pause", "resume", "drop", "set", "resend"]
    detail: str | None = None
    """What it was changed to, or which it was."""


def note_changes(
    connection: Connection, changes: Sequence[OperatorChange], by: By, *, schema: str
) -> None:
    """Keeps that somebody has changed this, in one statement."""
    if not changes:
        return
    values = {
        **by._asdict(),
        "whats": [one.what for one in changes],
        "names": [one.name for one in changes],
        "types": [one.type for one in changes],
        "actions": [one.action for one in changes],
        "details": [one.detail for one in changes],
    }
    connection.execute(query("note_changes", schema), values)
