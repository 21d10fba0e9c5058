"""What operators change beside rows of requests, kept with who and why.

Whoever changes something notes it here: in the same transaction where it stands in the journal,
afterwards where it stands elsewhere, as limits do, or is done by somebody else: what runs is ended
by the instance that runs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from feedback.contract.states import State
from feedback.journal.connections import Connection
from feedback.journal.queries import query
from feedback.operations.request_actions import By
from feedback.operations.request_reads import Row
from feedback.schema_versions import LOCK


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


def note_ended_runs(connection: Connection, ended: Sequence[Row], by: By, *, schema: str) -> None:
    """Keeps who ended these, which ran, as a move of each: rows as `that_ran` gives them.

    A run has one such move at most: who asks twice at once has ended it once.
    """
    values = {
        **by._asdict(),
        "ids": [row["id"] for row in ended],
        "runs": [row["run"] for row in ended],
        "states": [str(row["state"]) for row in ended],
    }
    with connection.transaction():
        # Two statements: the second one sees what those have noted whom the first has waited for.
        connection.execute(LOCK, [f"oncepool ended runs of {schema}"])
        connection.execute(query("note_ended_runs", schema), values)


def that_ran(rows: Sequence[Row]) -> list[Row]:
    """Those of what was moved that ran before; a move of what waited is kept with it."""
    return [row for row in rows if row.get("from_state") == State.RUNNING]
