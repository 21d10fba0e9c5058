"""What becomes of messages that were not parked as their ids have rows already. Pure.

The row answers its own request, sent again. Another request is a dead letter, as it would be had it
come to a worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from feedback.contract.record import Record
from feedback.contract.states import State
from feedback.journal.comparison import content_type_of
from feedback.journal.dead_letters import DeadLetter, conflict_letter
from feedback.journal.parking import ParkedRequest
from feedback.journal.rows import StoredRequest


@dataclass(slots=True)
class Copies:
    """Messages by what comes next."""

    answered: list[str] = field(default_factory=list)
    """Ids whose rows answer them."""
    resends: list[str] = field(default_factory=list)
    """Those of them that were sent again, and not only read again."""
    waiting: int = 0
    """How many of those rows wait."""
    conflicts: list[DeadLetter] = field(default_factory=list)
    """Their ids belong to other requests."""
    unsaid: list[str] = field(default_factory=list)
    """Ids of which nothing can be said: without a row, or with a failed one that only the code of
    their type can compare with them, which others here have. Run as it stands it might be another
    request's."""
    unreadable: list[str] = field(default_factory=list)
    """Those of them whose rows are in no form that this version reads."""


def sort_copies(
    parcels: Iterable[ParkedRequest],
    records: Mapping[str, Record],
    rows: Mapping[str, StoredRequest],
) -> Copies:
    """Sorts those that were not parked; `records` and `rows` by their ids."""
    result = Copies()
    for parcel in parcels:
        row = rows.get(parcel.id)
        same = None if row is None else parcel.is_same(row)
        if row is not None and same is False:
            known = parcel.comparable is not None
            letter = conflict_letter(parcel.id, parcel.type, row, records[parcel.id], known=known)
            result.conflicts.append(letter)
        elif row is None or (row.state == State.FAILED and same is None and not parcel.made(row)):
            result.unsaid.append(parcel.id)
            if row is not None and content_type_of(row) is None:
                result.unreadable.append(parcel.id)
        else:
            result.answered.append(parcel.id)
            if not parcel.made(row):
                result.resends.append(parcel.id)
            result.waiting += row.state == State.WAITING
    return result
