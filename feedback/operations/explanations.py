"""Why an operator's move left a request as it is, and what to do instead."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from psycopg.rows import dict_row

from feedback.contract.states import State
from feedback.journal.connections import Connection
from feedback.journal.queries import query
from feedback.operations.expiry import EXPIRED


class Refusal(NamedTuple):
    """A request, or a dead letter, that was left as it is. `state` None: there is none."""

    id: str
    state: str | None
    reason: str


_ANY: Final[Mapping[str, int]] = {}
_AGAIN: Final = "submit it under a new id to have it done again"
_CANCEL_LATER: Final = (
    "where Redis tells what runs it can be cancelled some seconds after it began: try again then"
)
_WHY: Final[dict[tuple[str, str], str]] = {
    ("retry", State.DONE): f"is done; {_AGAIN}",
    ("retry", State.REJECTED): "was refused for good ({code}); correct it and submit it under a"
    " new id",
    ("retry", State.SUPERSEDED): "was superseded by {superseded_by}, which counts in its place",
    ("retry", State.WAITING): "waits already, due at {due_at}; `oncepool requests cancel` takes it"
    " out",
    ("retry", State.RUNNING): "is running right now; if its worker is gone it becomes in_doubt when"
    " its lease ends",
    ("retry", State.IN_DOUBT): "is in doubt: find out whether its effect happened, then `oncepool"
    " requests resolve`",
    ("cancel", State.DONE): "is done; what is done can't be cancelled",
    ("cancel", State.REJECTED): "was refused already ({code}); it will not run",
    ("cancel", State.SUPERSEDED): "was superseded by {superseded_by}; it will not run",
    ("cancel", State.CANCELLED): "is cancelled already",
    ("cancel", State.FAILED): "has failed and runs only if it is sent again or retried",
    ("cancel", State.DEAD): "is dead and runs only if it is retried; `oncepool dead-letters drop`"
    " puts it away",
    ("cancel", State.RUNNING): f"is running right now; {_CANCEL_LATER}",
    ("cancel", State.IN_DOUBT): "is in doubt: it has run; settle it with `oncepool requests"
    " resolve`",
}
_OTHER: Final = {
    "retry": "is {state}; only dead, failed and cancelled requests can be retried",
    "cancel": "is {state}; only waiting requests can be cancelled",
    "resolve": "is {state}; only requests in doubt can be resolved",
    "drop": "is {state}; only dead requests can be dropped",
}


def explain(
    connection: Connection,
    ids: Collection[str],
    action: str,
    expected: Sequence[str],
    *,
    late: Collection[str] = (),
    runs: Mapping[str, int] = _ANY,
    schema: str,
) -> list[Refusal]:
    """For each id why `action` did not move it; `expected` are the states that it moves from.

    Those that are `late` have expired, which is what kept them from running again. `runs` are those
    that it was to move them in.
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(query("why_not", schema), [list(ids)]).fetchall()
    found = {row["id"]: row for row in rows}
    return [
        _refusal(name, found.get(name), action, expected, late=name in late, run=runs.get(name))
        for name in sorted(ids)
    ]


def _refusal(
    name: str, row: dict[str, Any] | None, action: str, expected: Sequence[str], *, late: bool,
    run: int | None,
) -> Refusal:  # fmt: skip
    if row is None:
        return Refusal(name, None, "the journal has no such request")
    return Refusal(name, row["state"], _reason(row, action, expected, late=late, run=run))


def _reason(
    row: dict[str, Any], action: str, expected: Sequence[str], *, late: bool, run: int | None
) -> str:
    state = row["state"]
    if row["claimed"]:  # whose due time is its lease's end
        said = (
            "is running right now, or an instance has it in hand: a worker gets it soon, or it is"
            " given back"
        )
        return f"{said}; {_CANCEL_LATER}" if action == "cancel" else said
    if state not in expected:
        if isinstance(row["due_at"], datetime):
            row = {**row, "due_at": row["due_at"].astimezone(UTC).isoformat(timespec="seconds")}
        return _WHY.get((action, state), _OTHER[action]).format_map(row)
    if row["gone"]:
        return "has no payload in the journal; send it again with the same id"
    if late:
        return EXPIRED
    if row["newer"] is not None:
        return (
            f"gives way to {row['newer']}, a newer request of its reference; cancel that one first"
            " if it waits, or submit what is to be done under a new id"
        )
    other = run is not None and row["run"] != run
    what = f"is at run {row['run']}, not {run}" if other else "was moved by somebody else meanwhile"
    return f"{what}; look at it and try again"
