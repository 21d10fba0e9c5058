"""Housekeeping in the journal: claims that ran out become `in_doubt`, counters are written.

Connections are in autocommit mode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

import psycopg

from feedback.contract.states import WORKER_DIED, State
from feedback.journal.connections import Connection
from feedback.journal.halving import write_in_halves
from feedback.journal.queries import execute
from feedback.journal.result_outbox import ResultRecord
from feedback.status.status import StatusFields, StatusWrite

CountKey: TypeAlias = tuple[int, str, str, str]
"""(minute as epoch seconds, type, state, code)"""

SWEEP_AT_ONCE: Final = 500
_EXPIRED: Final = (
    "its lease ran out: the worker that ran it died with its machine, or hangs. Whether the "
    "external effect happened is not known"
)


class ExpiredClaim(NamedTuple):
    """A claim that the sweep has made `in_doubt`."""

    id: str
    type: str
    attempt: int
    run: int
    code: str
    error: str
    finished_at: datetime
    status_ttl: int | None
    """Seconds; None = the default."""
    fingerprint: bytes | None
    """None also where producers could not compare it."""
    state: State = State.IN_DOUBT

    def status(self) -> StatusFields:
        """What it says now."""
        return StatusFields(
            self.id, self.type, self.state, self.run, code=self.code, attempt=self.attempt,
            at=self.finished_at, fingerprint=self.fingerprint, error=self.error,
        )  # fmt: skip


def sweep_expired_claims(
    connection: Connection, *, schema: str, limit: int = SWEEP_AT_ONCE
) -> list[ExpiredClaim]:
    """Makes claims whose lease has run out `in_doubt`, at most `limit`; those that it made so."""
    values = {"limit": limit, "code": WORKER_DIED, "error": _EXPIRED}
    rows = execute(connection, "sweep_expired_claims", schema, values).fetchall()
    return [ExpiredClaim(*row) for row in rows]


def add_counters(
    connection: Connection, counts: Mapping[CountKey, int], *, schema: str
) -> list[tuple[CountKey, psycopg.Error]]:
    """Adds to the counters, all or nothing; those that the database refuses, and why.

    Raises psycopg.Error where the database is away: then none was added.
    """

    def add(keys: Sequence[CountKey]) -> None:
        columns: list[Sequence[Any]] = [list(column) for column in zip(*keys, strict=True)]
        values = [*columns, [counts[key] for key in keys]]
        execute(connection, "add_counters", schema, values)

    with connection.transaction():
        return write_in_halves(connection, list(counts), add)


def in_doubt_statuses(rows: Sequence[ExpiredClaim], ttl: int) -> list[StatusWrite]:
    """The statuses of swept claims; `ttl` seconds is for types that say nothing else."""
    return [StatusWrite.of(row.status(), ttl=row.status_ttl or ttl) for row in rows]


def in_doubt_records(rows: Sequence[ExpiredClaim]) -> list[ResultRecord]:
    """Their result records."""
    return [ResultRecord(row.id, row.type, row.state, row.code) for row in rows]
