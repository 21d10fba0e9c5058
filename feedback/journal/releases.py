"""Claims given back: rows that wait again, for any instance, and what gives way to them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from psycopg import errors

from feedback.contract.record import claim_token
from feedback.contract.states import State
from feedback.journal.coalescing import Superseded
from feedback.journal.commits import Commits
from feedback.journal.connections import Connection, notify_due
from feedback.journal.queries import execute
from feedback.journal.result_outbox import ResultRecord, add_results
from feedback.journal.rows import readable_headers_of

ClaimNames: TypeAlias = Iterable[tuple[str, int]]
"""(id, order) of claimed rows."""

LOCK_BRIEFLY: Final = "SET LOCAL lock_timeout = '500ms'"
"""A resend that is answered, or a renewal, holds a row for less."""
_HARDLY_WAIT: Final = "SET LOCAL lock_timeout = '50ms'"
"""For what was waited for already."""
_FREE: Final = " FOR UPDATE SKIP LOCKED"
WITHIN: Final = 3.0
"""Seconds after which what could not be given back at once is left for the next time: meanwhile
claims have to be renewed."""


class ReturnMarks(NamedTuple):
    """Ids of rows given back of which there is more to know."""

    begun: Sequence[str] = ()
    """They may have been started."""
    in_place: Sequence[str] = ()
    """They are due since they were before the claim, and not from now on."""


_UNMARKED: Final = ReturnMarks()


def tokens_of(instance: str, claims: ClaimNames) -> tuple[list[str], dict[str, Any]]:
    """The ids of an instance's claims, sorted, and the values `ids` and `tokens` of statements."""
    # Of two claims of one row only the later one can still hold.
    orders = dict(sorted(claims, key=_order_of))
    ids = sorted(orders)
    return ids, {
        "ids": ids,
        "tokens": [claim_token(instance, orders[request_id]) for request_id in ids],
    }


def release(
    connection: Connection,
    instance: str,
    pairs: ClaimNames,
    *,
    schema: str,
    results: bool = False,
    marks: ReturnMarks = _UNMARKED,
    commits: Commits[Any] | None = None,
    within: float = WITHIN,
) -> list[tuple[str, int]]:
    """Gives back claims: due at once, for any instance.

    `commits` hears of those that a newer request of their reference has replaced meanwhile,
    instead: Superseded. Where somebody keeps another one of its reference locked a claim is left
    to its lease. Returns the claims for which there was no time `within` so many seconds; some are
    always done.
    """
    claims = [*dict(sorted(pairs, key=_order_of)).items()]
    if not claims:
        return []
    commits = Commits() if commits is None else commits
    end = time.monotonic() + within

    def write(lock: str, some: Sequence[tuple[str, int]], wait: str) -> None:
        values = tokens_of(instance, some)[1]
        with commits.transaction(connection) as superseded:
            connection.execute(wait)
            superseded.extend(_release(connection, lock, values, schema, marks, results=results))

    # What is locked for long is being finished, and is left to that in the end. A newer one of a
    # reference that arrives between two statements has it done once more.
    for lock in (" FOR UPDATE", _FREE):
        with contextlib.suppress(errors.LockNotAvailable, errors.UniqueViolation):
            write(lock, claims, LOCK_BRIEFLY)
            return []
    parts = _halves(claims)
    while parts:
        part = parts.pop()
        try:
            write(_FREE, part, _HARDLY_WAIT)
        except (errors.LockNotAvailable, errors.UniqueViolation):
            if len(part) > 1:
                parts += _halves(part)
                continue
        if time.monotonic() >= end:
            break
    return [claim for part in reversed(parts) for claim in part]


def _halves(claims: list[tuple[str, int]]) -> list[list[tuple[str, int]]]:
    """The second one, and the first one at last; all of one claim."""
    middle = len(claims) // 2
    return [claims[middle:], claims[:middle]] if middle else [claims]


def _release(
    connection: Connection,
    lock: str,
    values: Mapping[str, Any],
    schema: str,
    marks: ReturnMarks,
    *,
    results: bool,
) -> list[Superseded]:
    locked = execute(connection, "lock_claims", schema, values, lock).fetchall()
    superseded = give_back(connection, locked, schema, marks)
    if results:
        note_ended(connection, superseded, schema)
    if locked:
        notify_due(connection, schema=schema)
    return superseded


def settle(
    connection: Connection, ids: Sequence[str], token: str, *, schema: str, results: bool
) -> list[Superseded]:
    """Claims under `token` that this transaction made of rows with a reference wait, unclaimed.

    Returns those of the reference that gave way. Raises UniqueViolation where another one came
    meanwhile, and LockNotAvailable.
    """
    if not ids:
        return []
    values = {"ids": list(ids), "token": token}
    superseded = read_superseded(execute(connection, "supersede_started", schema, values))
    gone = {row.id for row in superseded}
    left = [(request_id, True) for request_id in sorted(set(ids) - gone)]
    superseded += give_back(connection, left, schema)
    if results:
        note_ended(connection, superseded, schema)
    return superseded


def give_back(
    connection: Connection,
    locked: Sequence[tuple[str, bool]],
    schema: str,
    marks: ReturnMarks = _UNMARKED,
) -> list[Superseded]:
    """Rows that this transaction has locked wait again: (id, whether it coalesces).

    Raises UniqueViolation where a newer one of a reference came between two statements.
    """
    lost: list[Superseded] = []
    if coalescing := [request_id for request_id, coalesces in locked if coalesces]:
        execute(connection, "lock_older", schema, {"ids": coalescing})
        # In this order: who has given way replaces nobody.
        for step in ("supersede_claims", "supersede_older"):
            lost += read_superseded(execute(connection, step, schema, {"ids": coalescing}))
    if locked:
        ids = [request_id for request_id, _ in locked]
        values = {"ids": ids, "begun": list(marks.begun), "in_place": list(marks.in_place)}
        execute(connection, "release_claims", schema, values)
    return lost


def read_superseded(rows: Iterable[tuple[Any, ...]]) -> list[Superseded]:
    """What the statements return that make rows `superseded`."""
    return [Superseded(*row[:6])._replace(headers=readable_headers_of(row[6])) for row in rows]


class EndedRow(Protocol):
    """What is needed of a row that ended without a run."""

    @property
    def id(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def state(self) -> State: ...
    @property
    def code(self) -> str: ...


def note_ended(connection: Connection, ended: Sequence[EndedRow], schema: str) -> None:
    """Writes their result records."""
    records = [ResultRecord(row.id, row.type, row.state, row.code) for row in ended]
    with connection.cursor() as cursor:
        add_results(cursor, schema, records)


def _order_of(claim: tuple[str, int]) -> int:
    return claim[1]
