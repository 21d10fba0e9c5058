"""The books of the waiting queue: what was delayed, retried, coalesced, dead and revived. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from examples.demo.book import Book, JournalRow, QueuePlan
from examples.demo.item import Way


@dataclass(slots=True)
class QueueLedger:
    """What the queue did, in requests. All of them are done unless it says otherwise."""

    delayed: int = 0
    """Not before the time that their producer named."""
    followed: int = 0
    """Asked for by another request, not before the time that it named."""
    retried: Counter[int] = field(default_factory=Counter)
    """By the attempt that succeeded."""
    counted: int = 0
    """Ran as the newest one of their reference."""
    superseded: int = 0
    """Superseded by one of these."""
    revived: int = 0
    """Were dead, and were retried by an operator."""
    parked: int = 0
    """Left to the queue by a consumer that stopped, and run by another one."""
    late: list[float] = field(default_factory=list)
    """Seconds from the time named to the end, of those delayed or asked for."""

    @property
    def lateness(self) -> float:
        """The median of `late`."""
        return statistics.median(self.late) if self.late else 0.0

    def as_json(self) -> dict[str, Any]:
        """As part of the ledger's JSON object."""
        return {
            "delayed_done_when_due": self.delayed,
            "follow_ups_done_when_due": self.followed,
            "late_median_s": round(self.lateness, 3),
            "retried_done_at_attempt": {str(n): self.retried[n] for n in sorted(self.retried)},
            "coalesced_done": self.counted,
            "superseded_winner_done": self.superseded,
            "dead_retried_by_operator_done": self.revived,
            "parked_by_stopped_consumer": self.parked,
        }


def balance_queue(book: Book, unexplained: list[str]) -> QueueLedger:
    """Makes the queue's ledger; what is wrong is added to `unexplained`."""
    audit = _Audit(book, unexplained)
    audit.ledger.parked = book.parked
    for row in book.rows:
        if row.offset < 0:
            audit.follower(row)
        elif row.id in book.waits:  # one without a row is in the books of the messages
            audit.request(row, book.waits[row.id])
    return audit.ledger


class _Audit:
    """Looks at one request after the other."""

    def __init__(self, book: Book, unexplained: list[str]) -> None:
        self.ledger = QueueLedger()
        self.rows: dict[str, JournalRow] = {row.id: row for row in book.rows}
        self._book = book
        self._unexplained = unexplained
        self._askers = {row.follower: row for row in book.rows if row.follower is not None}
        self._failed = Counter(attempt.id for attempt in book.attempts)

    def request(self, row: JournalRow, waits: QueuePlan) -> None:
        """One that was sent."""
        if waits.way is Way.COALESCED:
            self._coalesced(row)
        elif row.state == "done":
            match waits.way:
                case Way.DELAYED:
                    self.ledger.delayed += self._in_time(row, waits.not_before)
                case Way.RETRIED:
                    self._retried(row, waits)
                case Way.DEAD:
                    self._revived(row, waits)
            if waits.follows is not None and row.follower not in self.rows:
                self._unexplained.append(f"{row.id}: done, and what it asked for is not there")

    def follower(self, row: JournalRow) -> None:
        """One that another one asked for."""
        asker = self._askers.get(row.id)
        plan = None if asker is None else self._book.waits.get(asker.id)
        if asker is None or asker.began_at is None or plan is None or plan.follows is None:
            self._unexplained.append(f"{row.id}: in the journal, and nobody asked for it")
        elif row.state != "done":
            self._unexplained.append(f"{row.id}: {row.end} in the journal, it should be done")
        else:
            due = asker.began_at + timedelta(seconds=plan.follows)
            self.ledger.followed += self._in_time(row, due)

    def _retried(self, row: JournalRow, waits: QueuePlan) -> None:
        failed = self._failed[row.id]
        self.ledger.retried[row.attempt] += 1
        if row.attempt != waits.attempt or failed < waits.attempt - 1:
            self._unexplained.append(
                f"{row.id}: done at attempt {row.attempt} after {failed} failed runs, it should be "
                f"attempt {waits.attempt}"
            )

    def _revived(self, row: JournalRow, waits: QueuePlan) -> None:
        failed = self._failed[row.id]
        self.ledger.revived += 1
        if row.id not in self._book.revived or failed < waits.attempt:
            self._unexplained.append(
                f"{row.id}: done after {failed} failed runs, it should be dead after "
                f"{waits.attempt} and retried by an operator"
            )

    def _coalesced(self, row: JournalRow) -> None:
        if row.state == "done":
            self.ledger.counted += 1
            return
        winner: JournalRow | None = row
        for _ in self.rows:  # no chain is longer
            if winner is None or winner.state != "superseded":
                break
            winner = self.rows.get(winner.superseded_by or "")
        if winner is not None and winner.state == "done":
            self.ledger.superseded += 1
        else:
            self._unexplained.append(
                f"{row.id}: superseded, and no request that took its place is done"
            )

    def _in_time(self, row: JournalRow, due: datetime | None) -> bool:
        if due is None or row.finished_at is None or row.finished_at < due:
            self._unexplained.append(
                f"{row.id}: ended {row.finished_at}, it was not to run before {due}"
            )
            return False
        self.ledger.late.append((row.finished_at - due).total_seconds())
        return True
