"""The waiting queue in the journal: claiming rows that are due, and giving them back.

A claim leaves the row `waiting` with a token, a lease and a raised run number, so a crash needs
nobody to clean up: when the lease ends the row is due again, and its next claim counts the crash.
Connections are in autocommit mode. Due times are compared with the database's clock alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias

import orjson
import psycopg
from psycopg import errors

from feedback.contract.record import DUE, Headers, Record
from feedback.contract.states import MOST_CRASHES, WORKER_DIED
from feedback.journal.coalescing import Superseded
from feedback.journal.queries import query
from feedback.journal.result_outbox import ResultRecord, add_results
from feedback.journal.rows import stored_headers
from feedback.journal.walk import first_due

Connection: TypeAlias = psycopg.Connection[Any]

LEASE: Final = 60.0
"""Seconds that a claim holds unless it is renewed."""
_ROUNDS: Final = 4
"""Claims of one want: types that have less than their share leave the rest to others."""
LOCK_BRIEFLY: Final = "SET LOCAL lock_timeout = '500ms'"
"""A resend that is answered, or a renewal, holds a row for less."""
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_LONGEST_CHANNEL: Final = 63  # bytes that PostgreSQL takes
_ROW_ONLY: Final = frozenset({"ce_id", "ce_type", "ce_notbefore"})
"""Headers that the row's columns say; `ce_notbefore` was for its first arrival."""


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """At most `most` rows, claimed under the token of `order`."""

    order: int
    most: int
    limits: Mapping[str, int] = field(default_factory=dict)
    """Most rows of a type, where that is less."""
    paused: Sequence[str] = ()
    """Types of which none is wanted."""


class Claimed(NamedTuple):
    """A claimed row, to be run."""

    record: Record
    verdict: str | None
    """`worker_died` where its claims have ended in death too often: it is only to be written."""


class ClaimResult(NamedTuple):
    """What a claim brought."""

    rows: list[Claimed]
    superseded: list[Superseded]
    due_in: float | None
    """Seconds until the first row of a type that has none due now; None where no such type is."""
    after: str
    """The type after which the next claim is to start."""


class _Row(NamedTuple):
    """What a claim returns of a row."""

    id: str
    type: str
    topic: str
    produced_at: datetime
    key: bytes | None
    payload: bytes | None
    headers: str | None
    crashes: int
    coalesce_key: str | None
    due: datetime
    created_at: datetime


Pairs: TypeAlias = Iterable[tuple[str, int]]
"""(id, order) of claimed rows."""


def claim_token(instance: str, order: int) -> str:
    """The token of rows that an instance claimed under an order; no two orders share one."""
    return f"{instance}:{order}"


def due_channel(schema: str) -> str:
    """The channel of NOTIFY that says: a row was made due by an operator, a park or a release."""
    name = f"{schema}_due".encode()
    if len(name) > _LONGEST_CHANNEL:
        name = schema.encode()[: _LONGEST_CHANNEL - 4] + b"_due"
    return name.decode(errors="replace")


def claim(
    connection: Connection,
    instance: str,
    want: ClaimRequest,
    *,
    schema: str,
    results: bool = False,
    after: str = "",
) -> ClaimResult:
    """Claims rows that are due, the first due ones of each type in turn, in one transaction.

    `results`: what is superseded on the way gets a result record. `after`: where the last claim
    left off; of very many types a claim looks at some.
    """
    firsts, after = first_due(connection, after, schema=schema)
    firsts = [(t, s) for t, s in firsts if t not in want.paused and want.limits.get(t, 1) > 0]
    later = min((s for _, s in firsts if s > 0), default=None)
    room = {t: want.limits.get(t, want.most) for t, s in firsts if s <= 0}
    if not room or want.most < 1:
        return ClaimResult([], [], later, after)
    values = {"token": claim_token(instance, want.order), "lease": LEASE}
    rows: list[_Row] = []
    with connection.transaction():
        for _ in range(_ROUNDS):
            shares = share_out(want.most - len(rows), room)
            if not shares:
                break
            got = _claim_shares(connection, shares, values, schema)
            rows += got
            for name, share in shares.items():
                n = sum(row.type == name for row in got)
                room[name] = room[name] - n if n == share else 0
        rows, superseded = _settle_references(connection, rows, values, schema)
        if results:
            _note(connection, superseded, schema)
    # Those that are due first go first; of one type the claim has seen to that.
    rows.sort(key=lambda row: (row.due, row.created_at))
    found = [Claimed(_record(row, want.order), _verdict(row)) for row in rows]
    return ClaimResult(found, superseded, later, after)


def share_out(n: int, room: Mapping[str, int]) -> dict[str, int]:
    """Shares of `n` between types, none above its room: equal ones as far as that goes.

    The first types get what can't be divided.
    """
    shares: dict[str, int] = {}
    left = n
    # The smallest first, so that what they leave is the others'.
    open_types = sorted((t for t in room if room[t] > 0), key=lambda t: room[t])
    for position, name in enumerate(open_types):
        shares[name] = min(room[name], left // (len(open_types) - position))
        left -= shares[name]
    for name in room:
        if left and name in shares and shares[name] < room[name]:
            shares[name] += 1
            left -= 1
    return {name: share for name, share in shares.items() if share}


def renew(connection: Connection, instance: str, pairs: Pairs, *, schema: str) -> int:
    """Lets the leases of claims begin anew; how many still were this instance's."""
    ids, values = _named(instance, pairs)
    if not ids:
        return 0
    return connection.execute(query("renew_claims", schema), {**values, "lease": LEASE}).rowcount


def hold(connection: Connection, tokens: Sequence[str], lease: float, *, schema: str) -> int:
    """Lets the leases of calls outside begin anew, by their chunks' tokens; how many there were."""
    if not tokens:
        return 0
    values = {"tokens": list(tokens), "lease": lease}
    return connection.execute(query("hold_claims", schema), values).rowcount


def release(
    connection: Connection, instance: str, pairs: Pairs, *, schema: str, results: bool = False
) -> list[Superseded]:
    """Gives back claims that were not started: due at once, for any instance.

    Returns those that a newer request of their reference has replaced meanwhile, instead.
    """
    ids, values = _named(instance, pairs)
    if not ids:
        return []
    # What is locked for long is being finished, and is left to that in the end. A newer one of a
    # reference that arrives between two statements has it done once more.
    *early, last = ("lock_claims", "lock_free_claims", "lock_free_claims")
    for lock in early:
        with contextlib.suppress(errors.LockNotAvailable, errors.UniqueViolation):
            return _release(connection, lock, values, schema, results=results)
    return _release(connection, last, values, schema, results=results)


def _release(
    connection: Connection, lock: str, values: Mapping[str, Any], schema: str, *, results: bool
) -> list[Superseded]:
    with connection.transaction():
        connection.execute(LOCK_BRIEFLY)
        locked = connection.execute(query(lock, schema), values).fetchall()
        superseded = _give_back(connection, locked, schema)
        if results:
            _note(connection, superseded, schema)
        if locked:
            notify(connection, schema=schema)
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
    superseded = _superseded(connection.execute(query("supersede_started", schema), values))
    gone = {row.id for row in superseded}
    left = [(name, True) for name in sorted(set(ids) - gone)]
    superseded += _give_back(connection, left, schema)
    if results:
        _note(connection, superseded, schema)
    return superseded


def notify(connection: Connection, *, schema: str) -> None:
    """Wakes the maintenance processes of all instances, when the transaction commits."""
    connection.execute("SELECT pg_notify(%s, '')", [due_channel(schema)])


def _headers(text: str | None) -> Headers:
    # psycopg's own reading of jsonb is a tenth of what a claim costs.
    return [] if text is None else stored_headers(orjson.loads(text))


def _claim_shares(
    connection: Connection, shares: Mapping[str, int], values: Mapping[str, Any], schema: str
) -> list[_Row]:
    values = {**values, "types": list(shares), "shares": list(shares.values())}
    return [_Row(*row) for row in connection.execute(query("claim_due", schema), values)]


def _settle_references(
    connection: Connection, rows: list[_Row], values: Mapping[str, Any], schema: str
) -> tuple[list[_Row], list[Superseded]]:
    """Of claimed rows that coalesce, notes those that start and gives back those that must not."""
    ids = [row.id for row in rows if row.coalesce_key is not None]
    if not ids:
        return rows, []
    values = {**values, "ids": ids}
    connection.execute(query("start_coalesced", schema), values)
    late = _superseded(connection.execute(query("supersede_started", schema), values))
    vain = {name for (name,) in connection.execute(query("claimed_in_vain", schema), values)}
    superseded = late + _give_back(connection, [(name, True) for name in sorted(vain)], schema)
    gone = vain | {row.id for row in late}
    return [row for row in rows if row.id not in gone], superseded


def _give_back(
    connection: Connection, locked: Sequence[tuple[str, bool]], schema: str
) -> list[Superseded]:
    """Rows that this transaction has locked wait again: (id, whether it coalesces)."""
    lost: list[Superseded] = []
    if coalescing := [name for name, coalesces in locked if coalesces]:
        # In this order: what has no newer one is the newest, so what else waits is older.
        for step in ("supersede_claims", "supersede_older"):
            lost += _superseded(connection.execute(query(step, schema), {"ids": coalescing}))
    if locked:
        ids = [name for name, _ in locked]
        connection.execute(query("release_claims", schema), {"ids": ids})
    return lost


def _superseded(rows: Iterable[tuple[Any, ...]]) -> list[Superseded]:
    return [Superseded(*row[:6])._replace(headers=_headers(row[6])) for row in rows]


def _note(connection: Connection, superseded: Sequence[Superseded], schema: str) -> None:
    records = [ResultRecord(s.id, s.type, s.state, s.code) for s in superseded]
    with connection.cursor() as cursor:
        add_results(cursor, schema, records)


def _named(instance: str, pairs: Pairs) -> tuple[list[str], dict[str, Any]]:
    # Of two claims of one row only the later one can still hold.
    orders = dict(sorted(pairs, key=_order_of))
    ids = sorted(orders)
    return ids, {"ids": ids, "tokens": [claim_token(instance, orders[name]) for name in ids]}


def _order_of(pair: tuple[str, int]) -> int:
    return pair[1]


def _record(row: _Row, order: int) -> Record:
    pairs: Headers = [("ce_id", row.id.encode()), ("ce_type", row.type.encode())]
    pairs += [pair for pair in _headers(row.headers) if pair[0] not in _ROW_ONLY]
    timestamp = (row.produced_at - _EPOCH) // _MILLISECOND
    return (row.topic, DUE, order, timestamp, row.key, row.payload, pairs, row.type)


def _verdict(row: _Row) -> str | None:
    return WORKER_DIED if row.crashes >= MOST_CRASHES else None
