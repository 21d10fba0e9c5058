"""What producers are told of claims that ran out. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from feedback.journal.result_outbox import ResultRecord
from feedback.operations.requests import ExpiredClaim
from feedback.status.store import StatusWrite
from feedback.status.writes import row_status


def statuses_in_doubt(rows: Sequence[ExpiredClaim], ttl: int) -> list[StatusWrite]:
    """The statuses of swept claims; `ttl` seconds is for types that say nothing else."""
    return [row_status(row, row.finished_at, ttl=row.status_ttl or ttl) for row in rows]


def records_in_doubt(rows: Sequence[ExpiredClaim]) -> list[ResultRecord]:
    """Their result records."""
    return [ResultRecord(row.id, row.type, row.state, row.code) for row in rows]
