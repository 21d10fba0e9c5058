"""Housekeeping in the journal: calls that nobody ends become `in_doubt`, counters are written.

Connections are in autocommit mode.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

import psycopg
from psycopg.errors import LockNotAvailable

from feedback.contract.headers import reply_channel
from feedback.contract.lost_starts import lost_reason
from feedback.contract.record import Headers
from feedback.contract.states import WORKER_DIED, State
from feedback.journal.commits import Commits
from feedback.journal.connections import Connection
from feedback.journal.halving import write_in_halves
from feedback.journal.queries import execute
from feedback.journal.result_outbox import ResultRecord
from feedback.journal.rows import readable_headers_of
from feedback.status.status import StatusFields, StatusWrite

CountKey: TypeAlias = tuple[int, str, str, str]
"""(minute as epoch seconds, type, state, code)"""

SWEEP_AT_ONCE: Final = 500
_EXPIRED: Final = (
    "its lease ran out: the worker that ran it died with its machine, or hangs. Whether the "
    "external effect happened is not known"
)


class DoubtedCall(NamedTuple):
    """A call whose claim nobody ends any more: it is `in_doubt` now."""

    id: str
    type: str
    attempt: int
    run: int
    code: str
    error: str | None
    reason: str | None
    finished_at: datetime
    status_ttl: int | None
    """Seconds; None = the default."""
    fingerprint: bytes | None
    """None also where producers could not compare it."""
    headers: Headers = []  # noqa: RUF012 - nobody writes to it
    """They say who wants to hear of its end."""
    state: State = State.IN_DOUBT

    def status(self) -> StatusFields:
        """What it says now."""
        return StatusFields(
            self.id, self.type, self.state, self.run, code=self.code, attempt=self.attempt,
            at=self.finished_at, fingerprint=self.fingerprint, error=self.error, reason=self.reason,
        )  # fmt: skip


def is_locked(connection: Connection, *, schema: str) -> bool:
    """Whether somebody has the table locked so that no row can be written now. Waits for nobody."""
    try:
        with connection.transaction():
            execute(connection, "lock_to_write", schema)
    except LockNotAvailable:
        return True
    return False


def sweep_expired_claims(connection: Connection, *, schema: str) -> list[DoubtedCall]:
    """Makes claims whose lease has run out `in_doubt`, some at once; those that it made so."""
    values = {"limit": SWEEP_AT_ONCE, "code": WORKER_DIED, "error": _EXPIRED}
    rows = execute(connection, "sweep_expired_claims", schema, values).fetchall()
    return _calls(rows)


def end_lost_calls(
    connection: Connection, codes: Mapping[str, str], blamed: Collection[str], *, schema: str
) -> list[DoubtedCall]:
    """Makes calls `in_doubt` whose workers are gone, by their claims' tokens; those it made so.

    `codes`: token -> the code to store; `blamed`: those for which a crash is counted. Raises
    psycopg.Error.
    """
    values = {
        "tokens": list(codes),
        "codes": list(codes.values()),
        "blamed": [token in blamed for token in codes],
        "reasons": list(map(lost_reason, codes.values())),
    }
    rows = execute(connection, "end_lost_calls", schema, values).fetchall()
    return _calls(rows)


def _calls(rows: Iterable[tuple[Any, ...]]) -> list[DoubtedCall]:
    return [DoubtedCall(*row[:10])._replace(headers=readable_headers_of(row[10])) for row in rows]


def add_counters(
    connection: Connection,
    counts: Mapping[CountKey, int],
    *,
    schema: str,
    commits: Commits[Mapping[CountKey, int]] | None = None,
) -> list[tuple[CountKey, psycopg.Error]]:
    """Adds to the counters, all or nothing; those that the database refuses, and why.

    Raises psycopg.Error where the database is away: then `commits` hears whether they were added,
    as soon as that is known.
    """

    def add(keys: Sequence[CountKey]) -> None:
        columns: list[Sequence[Any]] = [list(column) for column in zip(*keys, strict=True)]
        values = [*columns, [counts[key] for key in keys]]
        execute(connection, "add_counters", schema, values)

    with (commits or Commits()).transaction(connection, [counts]):
        return write_in_halves(connection, list(counts), add)


def in_doubt_statuses(rows: Sequence[DoubtedCall], ttl: int) -> list[StatusWrite]:
    """Their statuses; `ttl` seconds is for types that say nothing else."""
    return [
        StatusWrite.of(row.status(), ttl=row.status_ttl or ttl, reply_to=reply_channel(row.headers))
        for row in rows
    ]


def in_doubt_records(rows: Sequence[DoubtedCall]) -> list[ResultRecord]:
    """Their result records."""
    return [ResultRecord(row.id, row.type, row.state, row.code) for row in rows]
