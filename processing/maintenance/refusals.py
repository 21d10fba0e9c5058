"""What becomes of messages that this instance took and will not start. Pure.

Requests are told to come again: nothing of them is in the journal, so the run number is the store's
to raise (`bump`). What nobody sends again becomes a dead letter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from feedback.contract.counts import Count
from feedback.contract.envelope import read
from feedback.contract.record import TOPIC, TYPE, Record
from feedback.contract.states import DATABASE_UNAVAILABLE, MALFORMED, SHUTDOWN, State
from feedback.errors import Malformed
from feedback.journal.rows import DeadLetter
from feedback.status.store import StatusWrite
from feedback.status.writes import status_write

REASONS = {
    DATABASE_UNAVAILABLE: "the database is not reachable; nothing has run, send it again",
    SHUTDOWN: "the consumer stopped before it was this request's turn; send it again",
}


@dataclass(slots=True)
class Refused:
    """What is to be done about some messages."""

    writes: list[StatusWrite] = field(default_factory=list)
    counts: Counter[Count] = field(default_factory=Counter)
    """Requests that were answered so."""
    letters: list[DeadLetter] = field(default_factory=list)
    """Messages that cannot become a request, or whose decoder had not run."""


def refusals(
    records: Sequence[Record], code: str, at: datetime, ttl: int, decoded: Collection[str] = ()
) -> Refused:
    """Sorts messages; those of the topics `decoded` only their decoder can read."""
    result = Refused()
    for record in records:
        if record[TOPIC] in decoded:
            why = f"its decoder had not run when the consumer gave it up ({code})"
            result.letters.append(DeadLetter(None, MALFORMED, why, record))
            continue
        try:
            envelope = read(record)
        except Malformed as error:
            letter = DeadLetter(error.id, MALFORMED, str(error), record)
            result.letters.append(letter)
            result.writes += malformed_status(letter, at, ttl)
            continue
        result.writes.append(
            status_write(
                envelope.id, envelope.type, State.FAILED, 1, code=code, attempt=1, at=at,
                reason=REASONS.get(code), ttl=ttl, bump=True, reply_to=envelope.reply_to,
            )
        )  # fmt: skip
        result.counts[Count(envelope.type, State.FAILED, code)] += 1
    return result


def malformed_status(letter: DeadLetter, at: datetime, ttl: int) -> list[StatusWrite]:
    """`failed/malformed` for a message whose id at least is valid."""
    if letter.request_id is None:
        return []
    write = status_write(
        letter.request_id, letter.record[TYPE] or "", State.FAILED, 1, code=MALFORMED, attempt=1,
        at=at, reason=letter.error, ttl=ttl, bump=True,
    )  # fmt: skip
    return [write]
