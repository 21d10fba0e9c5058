"""What maintenance says of requests: frames to the main process, statuses, counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from feedback.contract.counts import AnyCounts, Count
from feedback.journal.claimed_rows import UnreadableRow
from feedback.journal.coalescing import Superseded, superseded_statuses
from feedback.journal.rows import StoredRequest
from feedback.status.status import StatusWrite
from processing.ipc.frames import Frame


@dataclass(frozen=True, slots=True)
class Reporting:
    """Where it says so. Any thread may use all of them."""

    tell: Callable[[Frame], None]
    """Sends a frame to the main process. Raises ChannelClosed when that is gone."""
    publish: Callable[[Sequence[StatusWrite]], None]
    """Queues statuses for Redis."""
    count: Callable[[AnyCounts], None]
    """Adds to the counters."""
    status_ttl: int
    """Seconds that statuses live where the type says nothing else."""

    def superseded(self, rows: Sequence[Superseded]) -> None:
        """Publishes and counts rows whose place a newer one has taken."""
        if rows:
            self.publish(superseded_statuses(rows, datetime.now(UTC), self.status_ttl))
            self.count(Counter(Count(row.type, row.state, row.code) for row in rows))

    def stored(self, rows: Iterable[StoredRequest]) -> None:
        """Publishes what rows say as they stand now."""
        now = datetime.now(UTC)
        self.publish([row.told(now, self.status_ttl) for row in rows])

    def unreadable(self, rows: Sequence[UnreadableRow]) -> None:
        """Publishes and counts rows that hold no request."""
        if rows:
            now, ttl = datetime.now(UTC), self.status_ttl
            self.publish([StatusWrite.of(r.status(now), ttl=r.status_ttl or ttl) for r in rows])
            self.count(Counter(Count(row.type, row.state, row.code) for row in rows))
