"""The waiting queue in the journal: claiming rows that are due, and keeping the claims.

A claim leaves the row `waiting` with a token, a lease and a raised run number, so a crash needs
nobody to clean up: when the lease ends the row is due again, and its next claim counts the lost
one. Nobody knows whether it was begun, so it takes many of those to make the row `dead`.
Connections are in autocommit mode. Due times are compared with the database's clock alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from psycopg.errors import DeadlockDetected, LockNotAvailable, UniqueViolation

from feedback.contract.record import HEADER_SIZE, Record, claim_token
from feedback.journal.claimed_rows import DueRow, UnreadableRow, read_records, verdict_of
from feedback.journal.coalescing import Superseded
from feedback.journal.commits import Commits
from feedback.journal.connections import Connection
from feedback.journal.queries import execute
from feedback.journal.releases import (
    LOCK_BRIEFLY,
    ClaimNames,
    give_back,
    note_ended,
    read_superseded,
    tokens_of,
)
from feedback.journal.type_turns import TypeTurns
from feedback.journal.unknown_types import UnknownTypes

LONGEST_WALK: Final = 2000
"""Types that one walk looks at."""
LEASE: Final = 60.0
"""Seconds that a claim holds unless it is renewed."""
MOST_BYTES: Final = 32 * 1024 * 1024
"""Bytes of payloads and headers in one claim, where nobody says how many."""
_SLACK: Final = 5.0
"""Seconds that clocks may run apart while a claim holds."""
_ROUNDS: Final = 4
"""Claims of one want: types that have less than their share leave the rest to others. The last one
is of all types that are left, however few rows are wanted."""


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """At most `most` rows, claimed under the token of `order`."""

    order: int
    most: int
    limits: Mapping[str, int] = field(default_factory=dict)
    """Most rows of a type, where that is less."""
    paused: Collection[str] = ()
    """Types of which none is wanted."""
    most_bytes: int = MOST_BYTES
    """At most so many bytes, and one row more than fits."""


class Claimed(NamedTuple):
    """A claimed row, to be run."""

    record: Record
    verdict: str | None
    """`worker_died` or `instance_died` where it has ended too many: it is only to be written."""


class ClaimResult(NamedTuple):
    """What a claim brought."""

    rows: list[Claimed]
    due_in: float | None
    """Seconds until the first of a type that has none to claim now; None where no such type is."""
    after: str
    """The type after which the next claim is to start."""
    unsettled: list[Record] = []  # noqa: RUF012 - nobody writes to it
    """Claimed, and to be given back: others of their references are locked, or came meanwhile."""


def claim(
    connection: Connection,
    instance: str,
    want: ClaimRequest,
    *,
    schema: str,
    results: bool = False,
    after: str = "",
    known: Collection[str] = (),
    unknown: UnknownTypes | None = None,
    turns: TypeTurns | None = None,
    expired: bool = True,
    commits: Commits[Superseded | UnreadableRow] | None = None,
    claiming: Callable[[str, list[str]], object] = lambda *_: None,
) -> ClaimResult:
    """Claims rows that are due, the first due ones of each type, in one transaction.

    `results`: what is superseded on the way gets a result record. `after`: where the last claim
    left off; of very many types a claim looks at some, and at those that are `known`, whose rows
    then go first. `unknown`: which rows of the other types are left to other instances.
    `turns`: whose turn it is where fewer rows are wanted than there are types.
    `expired`: also rows whose claim has run out, which counts as a lost one.
    `commits` hears of rows that end without a run, `claiming` of the transaction's id and the
    claimed rows' ids before it is committed, where it has claimed any.
    """
    firsts, after = first_due(connection, after, known, schema=schema)
    unknown = unknown or UnknownTypes()
    overdue = {t: 0.0 if t in known else unknown.patience for t, _ in firsts}
    due, later = _due_types(want, firsts, overdue)
    held = unknown.held(connection, instance, set(due).difference(known), LEASE, schema)
    room = {t: want.limits.get(t, want.most) for t in due if t not in held}
    if not room or want.most < 1:
        return ClaimResult([], later, after)
    values = {"token": claim_token(instance, want.order), "lease": LEASE, "expired": expired}
    before = [kind for kind in room if kind in known] if after else []
    with (commits or Commits()).transaction(connection) as ended:
        rows = _claim_rounds(connection, want, room, before, overdue, values, schema, turns)
        if rows:
            claiming(rows[0].transaction, [row.id for row in rows])
        records, unreadable = read_records(connection, rows, want.order, values, schema)
        rows = [row for row in rows if row.id in records]
        rows, superseded, stuck = _settle_references(connection, rows, values, schema)
        ended.extend([*superseded, *unreadable])
        if results:
            note_ended(connection, ended, schema)
    # Those that are due first go first; of one type the claim has seen to that.
    rows.sort(key=lambda row: (row.due, row.created_at))
    found = [Claimed(records[row.id], verdict_of(row)) for row in rows]
    unsettled = [records[row.id] for row in stuck]
    return ClaimResult(found, later, after, unsettled)


def share_out(n: int, room: Mapping[str, int]) -> dict[str, int]:
    """Shares of `n` between types, none above its room: equal ones as far as that goes.

    The first types get what can't be divided.
    """
    shares: dict[str, int] = {}
    left, kinds = n, [kind for kind in room if room[kind] > 0]
    # The smallest first, so that what they leave is the others'.
    for kind in sorted(kinds, key=room.__getitem__):
        if room[kind] > left // (len(kinds) - len(shares)):
            break
        shares[kind] = room[kind]
        left -= room[kind]
    others = [kind for kind in kinds if kind not in shares]
    for place, kind in enumerate(others):
        part, rest = divmod(left, len(others))
        shares[kind] = part + (place < rest)
    return {kind: share for kind, share in shares.items() if share}


def first_due(
    connection: Connection, after: str = "", known: Collection[str] = (), *, schema: str
) -> tuple[list[tuple[str, float]], str]:
    """(type, seconds until its first row is due), and the type after which the next walk starts.

    A walk costs one index look-up a type, so it is bounded: anybody can make up types. It goes
    round, so that none stays out of sight behind others: the next starts where this one ended.
    Those that are due first come first; '' is the beginning, and says that it has seen all. Where
    it has not, it has looked at all that are `known` besides.
    """
    found = last = _walk(connection, after, LONGEST_WALK, schema)
    left = LONGEST_WALK - len(found)
    if left and after:
        last = _walk(connection, "", left, schema)
        left -= len(last)
    place = "" if left else last[-1][0]
    # Where there are few, the second one sees some of them again.
    firsts = {**dict(found), **dict(last)}
    if place and known:
        values = {"types": list(known)}
        firsts |= dict(execute(connection, "due_of_types", schema, values).fetchall())
    return sorted(firsts.items(), key=_seconds), place


def claims_of(
    connection: Connection,
    instance: str,
    since: float,
    until: float,
    *,
    schema: str,
    after: str = "",
) -> tuple[set[tuple[str, int]], str]:
    """The claims of an instance that still stand, of those made between two times.

    They are so many seconds ago, by a clock that runs as fast as the database's. Of very many types
    it looks at some; the second is the one `after` which to go on, '' where there are no more.
    """
    types = [kind for kind, _ in _walk(connection, after, LONGEST_WALK, schema)]
    prefix = claim_token(instance, 0)[:-1]
    values = {
        "types": types, "prefix": prefix,
        "first": LEASE - since - _SLACK, "last": LEASE - until + _SLACK,
    }  # fmt: skip
    found = execute(connection, "claims_between", schema, values)
    claims = {(request_id, int(token.removeprefix(prefix))) for request_id, token in found}
    return claims, types[-1] if len(types) == LONGEST_WALK else ""


def renew(connection: Connection, instance: str, claims: ClaimNames, *, schema: str) -> int:
    """Extends the leases of claims; how many of them are still this instance's."""
    ids, values = tokens_of(instance, claims)
    if not ids:
        return 0
    return execute(connection, "renew_claims", schema, {**values, "lease": LEASE}).rowcount


def renew_calls(connection: Connection, tokens: Sequence[str], lease: float, *, schema: str) -> int:
    """Extends the leases of external calls, by their chunks' tokens; how many there were."""
    if not tokens:
        return 0
    values = {"tokens": list(tokens), "lease": lease}
    return execute(connection, "renew_calls", schema, values).rowcount


def _due_types(
    want: ClaimRequest, firsts: list[tuple[str, float]], overdue: Mapping[str, float]
) -> tuple[list[str], float | None]:
    """Wanted types that have rows to claim, the first due ones first, and when another one has."""
    wanted = [(t, s) for t, s in firsts if t not in want.paused and want.limits.get(t, 1) > 0]
    times = sorted(((t, s + overdue[t]) for t, s in wanted), key=_seconds)
    due = [t for t, s in times if s <= 0]
    return due, min((s for _, s in times if s > 0), default=None)


def _walk(connection: Connection, after: str, most: int, schema: str) -> list[tuple[str, float]]:
    values = {"after": after, "most": most}
    return execute(connection, "due_types", schema, values).fetchall()


def _seconds(found: tuple[str, float]) -> float:
    return found[1]


def _claim_rounds(
    connection: Connection,
    want: ClaimRequest,
    room: dict[str, int],
    before: Collection[str],
    overdue: Mapping[str, float],
    values: Mapping[str, Any],
    schema: str,
    turns: TypeTurns | None,
) -> list[DueRow]:
    """What types do not fill of their shares is left to the others, as far as there is `room`.

    Those `before` the others have the first round to themselves. Of each type rows are claimed that
    have been due for so many seconds (`overdue`). Who is offered a share has had its turn, also
    where none of its rows could be claimed.
    """
    rows: list[DueRow] = []
    turns = turns or TypeTurns()
    for number in range(_ROUNDS):
        most, left = want.most - len(rows), want.most_bytes - sum(row.size for row in rows)
        first = before if number == 0 else ()
        shares = share_out(most, {kind: room[kind] for kind in turns.in_line(first or room)})
        if not shares or left <= 0:
            break
        turns.had(shares)
        if number == _ROUNDS - 1:  # what is due of those before may be held up for long
            shares = {kind: shares.get(kind, 1) for kind, n in room.items() if n}
        bounded = {
            **values, "bytes": left, "most": most, "header": HEADER_SIZE,
            "types": list(shares), "shares": list(shares.values()),
            "overdue": [overdue[kind] for kind in shares],
        }  # fmt: skip
        got = [DueRow(*row) for row in execute(connection, "claim_due", schema, bounded)]
        rows += got
        for kind, share in shares.items():
            n = sum(row.type == kind for row in got)
            room[kind] = room[kind] - n if n == share else 0
    return rows


def _settle_references(
    connection: Connection, rows: list[DueRow], values: Mapping[str, Any], schema: str
) -> tuple[list[DueRow], list[Superseded], list[DueRow]]:
    """Of claimed rows that coalesce, notes those that start and gives back those that must not.

    The last ones that it returns could not be settled, as it waits for nobody for long.
    """
    ids = [row.id for row in rows if row.coalesce_key is not None]
    if not ids:
        return rows, [], []
    try:
        with connection.transaction():
            connection.execute(LOCK_BRIEFLY)
            gone, superseded = _settle(connection, ids, {**values, "ids": ids}, schema)
    except (LockNotAvailable, DeadlockDetected, UniqueViolation):
        return [row for row in rows if row.id not in ids], [], [r for r in rows if r.id in ids]
    return [row for row in rows if row.id not in gone], superseded, []


def _settle(
    connection: Connection, ids: Sequence[str], values: Mapping[str, Any], schema: str
) -> tuple[set[str], list[Superseded]]:
    """Those that must not start, and those that gave way."""
    execute(connection, "start_coalesced", schema, values)
    late = read_superseded(execute(connection, "supersede_started", schema, values))
    vain = {request_id for (request_id,) in execute(connection, "claimed_in_vain", schema, values)}
    superseded = late + give_back(
        connection, [(request_id, True) for request_id in sorted(vain)], schema
    )
    gone = vain | {row.id for row in late}
    if started := [request_id for request_id in ids if request_id not in gone]:
        expired = execute(connection, "supersede_expired", schema, {**values, "ids": started})
        superseded += read_superseded(expired)
    return gone, superseded
