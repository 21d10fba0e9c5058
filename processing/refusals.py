"""Statuses of requests that this instance took and will not start. Pure.

Nothing of them is in the journal, so the run number is the store's to raise (`bump`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from feedback.envelope import read
from feedback.errors import Malformed
from feedback.record import Record
from feedback.states import DATABASE_UNAVAILABLE, SHUTDOWN, State
from feedback.status import encode_status
from feedback.store import StatusWrite

REASONS = {
    DATABASE_UNAVAILABLE: "the database is not reachable; nothing has run, send it again",
    SHUTDOWN: "the consumer stopped before it was this request's turn; send it again",
}


def refusals(
    records: Sequence[Record], code: str, at: datetime, ttl: int
) -> tuple[list[StatusWrite], dict[tuple[str, str, str], int]]:
    """The statuses to write, and how many requests of each type they answer.

    Messages that are no request are left out: nobody can read a status of theirs, and whoever
    reads the topic again finds them again.
    """
    writes: list[StatusWrite] = []
    counts: dict[tuple[str, str, str], int] = {}
    for record in records:
        try:
            envelope = read(record)
        except Malformed:
            continue
        value = encode_status(
            envelope.id,
            envelope.type,
            State.FAILED,
            1,
            code=code,
            attempt=1,
            at=at,
            reason=REASONS.get(code),
        )
        writes.append(StatusWrite(envelope.id, value, ttl, bump=True, reply_to=envelope.reply_to))
        key = (envelope.type, str(State.FAILED), code)
        counts[key] = counts.get(key, 0) + 1
    return writes, counts
