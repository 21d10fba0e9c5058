"""How operators move requests: retry, cancel, resolve, drop.

Each move is one guarded statement for all ids that are given (callers pass at most AT_ONCE), in a
transaction of its own: the row's lock decides races, `run` is raised, who and why are kept in
`transitions`. Connections are in autocommit mode. Whoever calls writes the statuses of what was
moved to Redis afterwards; the journal is right without them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

from psycopg import Error, errors

from feedback.contract.headers import reply_channel
from feedback.contract.payloads import parse_json, refuse_deep, write_json
from feedback.contract.states import CANCELLED, State
from feedback.errors import OncepoolError
from feedback.journal.connections import Connection, notify_due
from feedback.journal.queries import query
from feedback.journal.rows import readable_headers
from feedback.operations.expiry import expired
from feedback.operations.explanations import Refusal, explain
from feedback.status.status import AROUND_RESULT, StatusFields, StatusWrite

RETRYABLE: Final = (State.DEAD, State.FAILED, State.CANCELLED)
AT_ONCE: Final = 500

RESOLVED: Final = "resolved"
DROPPED: Final = "dropped"

Resolution = Literal["done", "failed", "retry"]
Runs = Mapping[str, int]
"""Request id -> the run in which somebody saw it."""


class By(NamedTuple):
    """Who moves requests, and why."""

    who: str
    why: str | None = None

    def said(self, what: str) -> str:
        """The same as one text, of what was done."""
        return f"{what} by {self.who}" + ("" if self.why is None else f": {self.why}")


class Moved(NamedTuple):
    """A request after its move. `result` is JSON text; `headers` are the stored ones."""

    id: str
    type: str
    from_state: str
    state: str
    code: str
    attempt: int
    run: int
    at: datetime
    fingerprint: bytes | None
    own_fingerprint: bool
    result: str | None
    error: str | None
    reason: str | None
    due_at: datetime | None
    status_ttl: int | None
    headers: Any

    def status(self) -> StatusWrite:
        """Its status."""
        state = State(self.state)
        fields = StatusFields(
            self.id, self.type, state, self.run, code=self.code, attempt=self.attempt, at=self.at,
            fingerprint=None if self.own_fingerprint else self.fingerprint, result=self.result,
            error=self.error, reason=self.reason,
            retry_at=self.due_at if state is State.WAITING else None,
        )  # fmt: skip
        reply_to = reply_channel(readable_headers(self.headers))
        return StatusWrite.of(fields, ttl=self.status_ttl, reply_to=reply_to)


class TransitionOutcome(NamedTuple):
    """What was moved, and what was not and why."""

    moved: list[Moved]
    refused: list[Refusal]


class PartlyMoved(OncepoolError):
    """The journal refused one by one what it had not taken at once, and some were moved by then."""


class ResultRefused(ValueError):
    """A result that is not JSON, or that PostgreSQL does not take as JSON."""


def retry(
    connection: Connection,
    ids: Iterable[str],
    by: By,
    *,
    states: Sequence[State] = RETRYABLE,
    runs: Runs | None = None,
    schema: str,
) -> TransitionOutcome:
    """Dead, failed or cancelled requests run again, at once: attempt 1, no crashes counted.

    They keep id, payload and history. With `runs` each is moved only in the run that is given of
    it: what ran meanwhile and ended in the same way is left as it is. A coalescing one is refused
    where a newer one waits under its reference, or has been started, and any that has expired.
    """
    values = {"states": [str(state) for state in states], "action": "retry"}
    return _move(connection, "retry_requests", ids, by, values, schema, runs=runs, again=True)


def in_retry_order(connection: Connection, ids: Sequence[str], *, schema: str) -> Sequence[str]:
    """The ids in the order in which more than AT_ONCE of them are to be retried."""
    if len(ids) <= AT_ONCE:
        return ids
    rows = connection.execute(query("in_retry_order", schema), [list(ids)])
    known = [name for (name,) in rows]
    return [*known, *dict.fromkeys(ids).keys() - set(known)]


def cancel(
    connection: Connection,
    ids: Iterable[str],
    by: By,
    *,
    schema: str,
    results: bool = False,
) -> TransitionOutcome:
    """Waiting requests that nobody has in hand will not run.

    `results`: whether what ends leaves a record for the results topic.
    """
    values = _end("cancel", State.WAITING, State.CANCELLED, CANCELLED, results=results)
    return _move(connection, "end_requests", ids, by, values, schema)


def resolve(
    connection: Connection,
    ids: Iterable[str],
    resolution: Resolution,
    by: By,
    *,
    result: bytes | None = None,
    runs: Runs | None = None,
    schema: str,
    results: bool = False,
) -> TransitionOutcome:
    """Requests in doubt are done (with `result`, JSON), failed, or run again.

    Their token is gone afterwards, so a late end of the run in doubt finds nothing. `runs`, and
    what has expired, as in retry(). Raises ResultRefused.
    """
    if resolution == "retry":
        values: dict[str, Any] = {"states": [str(State.IN_DOUBT)], "action": "resolve"}
        return _move(connection, "retry_requests", ids, by, values, schema, runs=runs, again=True)
    values = _end("resolve", State.IN_DOUBT, State(resolution), RESOLVED, results=results)
    values["result"] = _checked(result)
    try:
        return _move(connection, "end_requests", ids, by, values, schema, runs=runs)
    except (errors.UntranslatableCharacter, errors.InvalidTextRepresentation) as error:
        said = error.diag.message_detail or error.diag.message_primary or str(error)
        raise ResultRefused(f"PostgreSQL does not take this result: {said}") from None


def drop(
    connection: Connection,
    ids: Iterable[str],
    by: By,
    *,
    runs: Runs | None = None,
    schema: str,
    results: bool = False,
) -> TransitionOutcome:
    """Dead requests are cancelled, so that their ids stay known until they are pruned.

    `runs` as in retry().
    """
    values = _end("drop", State.DEAD, State.CANCELLED, DROPPED, results=results)
    return _move(connection, "end_requests", ids, by, values, schema, runs=runs)


def _end(action: str, start: State, end: State, code: str, *, results: bool) -> dict[str, Any]:
    """The values of a move after which nothing runs."""
    return {
        "action": action, "from_state": str(start), "to_state": str(end), "code": code,
        "result": None, "results": results,
    }  # fmt: skip


def _move(
    connection: Connection,
    name: str,
    ids: Iterable[str],
    by: By,
    values: dict[str, Any],
    schema: str,
    *,
    runs: Runs | None = None,
    again: bool = False,
) -> TransitionOutcome:
    """`again`: they run again, so none that has expired, and somebody is to look for them."""
    wanted = list(dict.fromkeys(ids))
    late = expired(connection, wanted, schema=schema) if again else frozenset[str]()
    values = {**values, **by._asdict()}
    values["runs"] = None if runs is None else write_json(dict(runs)).decode()
    expected: Sequence[str] = values.get("states") or [values["from_state"]]
    text = query(name, schema)

    def move(ids: Sequence[str]) -> list[Moved]:
        given = {**values, "ids": [one for one in ids if one not in late]}
        moved = [Moved(*row) for row in connection.execute(text, given)]
        if moved and again:
            notify_due(connection, schema=schema)
        return moved

    def refuse(moved: Sequence[Moved]) -> list[Refusal]:
        if not (missed := set(wanted) - {row.id for row in moved}):
            return []
        action, seen = values["action"], runs or {}
        return explain(connection, missed, action, expected, late=late, runs=seen, schema=schema)

    with suppress(errors.UniqueViolation), connection.transaction():
        # What fails here undoes the move: who hears of an error has moved nothing.
        moved = move(wanted)
        return TransitionOutcome(moved, refuse(moved))
    # One of its reference began to wait, or two of these have the same one. Alone each either
    # moves or sees the other: the violation has waited for the other's end. The newest first, as
    # the older ones give way to it.
    moved = []
    try:
        for (one,) in connection.execute(query("newest_first", schema), [wanted]).fetchall():
            moved += _move_alone(connection, one, move)
        return TransitionOutcome(moved, refuse(moved))
    except Error as error:
        if not moved or connection.closed:
            raise
        raise PartlyMoved(f"the journal refused after some had been moved: {error}") from error


def _move_alone(
    connection: Connection, id: str, move: Callable[[Sequence[str]], list[Moved]]
) -> list[Moved]:
    for _ in range(2):
        with suppress(errors.UniqueViolation), connection.transaction():
            return move([id])
    return []


def _checked(result: bytes | None) -> str | None:
    if result is None:
        return None
    try:
        refuse_deep(result, parse_json(result), around=AROUND_RESULT)
        return result.decode()
    except ValueError as error:
        raise ResultRefused(f"the result is not JSON: {error}") from None
