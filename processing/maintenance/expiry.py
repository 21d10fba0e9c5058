"""What producers are told of claims that ran out. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from feedback.contract.states import State
from feedback.journal.result_outbox import ResultRecord
from feedback.operations.requests import ExpiredClaim
from feedback.status.status import encode_status
from feedback.status.store import StatusWrite


def statuses_in_doubt(rows: Sequence[ExpiredClaim], ttl: int) -> list[StatusWrite]:
    """The statuses of swept claims; `ttl` seconds is for types that say nothing else."""
    return [
        StatusWrite(
            row.id,
            encode_status(
                row.id,
                row.type,
                State.IN_DOUBT,
                row.run,
                code=row.code,
                attempt=row.attempt,
                at=row.finished_at,
                fingerprint=row.fingerprint,
                error=row.error,
            ),
            row.status_ttl or ttl,
        )
        for row in rows
    ]


def records_in_doubt(rows: Sequence[ExpiredClaim]) -> list[ResultRecord]:
    """Their result records."""
    return [ResultRecord(row.id, row.type, State.IN_DOUBT, row.code) for row in rows]
