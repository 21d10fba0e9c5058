"""Turns of claim, send and mark, each one transaction, for one sender."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from feedback.outbox.relay.batch import BackingOff, Batch, BatchMarks, ClaimedRow, RowRefusal
from feedback.outbox.relay.claim_width import ClaimWidth
from feedback.outbox.relay.database import Bounds, RelayDatabase
from feedback.outbox.relay.marking import SetAside
from feedback.outbox.relay.outage import RelayOutage
from feedback.outbox.relay.releases import Releases
from feedback.outbox.relay.statuses import StatusReader

log = logging.getLogger("oncepool.relay")

SEND_TIMEOUT: Final = 10.0
"""Seconds in which a batch has to be confirmed: no longer is its transaction open."""


_ASKING: Final = 16
"""Rows, and shards."""


class BatchSender(Protocol):
    """Where a sender's rows go: topic and cluster."""

    largest: int
    """Bytes of the largest message that it sends, once it was open()."""

    def open(self) -> str | None:
        """Sees that rows can be sent; why not, where no broker answers."""

    def ask(self) -> str | None:
        """Why no broker answers. In any thread."""

    def check(self, row: ClaimedRow) -> RowRefusal | None:
        """Refuses what no broker would take."""

    def waits(self, row: ClaimedRow) -> bool:
        """Whether it is not to be sent now, as its partition takes nothing."""

    def send(self, batch: Batch, rows: list[ClaimedRow], timeout: float) -> str | None:
        """Tells the batch of each row, and of what it holds; why the brokers took nothing."""

    def freed(self) -> list[str]:
        """How errors begin with which rows were put off that need not wait any more."""

    def close(self) -> None:
        """Takes back what is not confirmed."""


class SendTurns:
    """Sends what stands in one outbox for one sender. Any number may do so side by side."""

    def __init__(
        self,
        name: str,
        sender: BatchSender,
        *,
        bounds: Bounds | None = None,
        statuses: StatusReader | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._sender = sender
        self._statuses = statuses
        self._bounds = bounds or Bounds()
        self._width = ClaimWidth(self._bounds.shards)
        self._brokers = RelayOutage(clock=clock)
        self._asks = False
        """What was heard last is that the brokers are away: few rows ask whether they still are."""
        # A relay that has ended kept to itself why it had put rows off: all are looked at anew.
        self._releases = Releases([""])
        self._unmarked = False
        """What was sent last may not be marked: that is tried before anything else is sent."""
        self.sent = 0
        """Rows that brokers have confirmed."""

    @property
    def away(self) -> str | None:
        """Why the brokers count as away."""
        return self._brokers.why

    @property
    def pause(self) -> float:
        """Seconds until the brokers may be asked again."""
        return self._brokers.pause

    def turn(self, database: RelayDatabase) -> int:
        """One batch; how many rows it had. What a crash in here has sent is sent once more.

        Raises psycopg.Error.
        """
        # Before any shard is locked, as this may take its time.
        why = self._sender.open()
        if why is not None:
            self._failed(why)
            return 0
        self._releases.turn(self._sender.freed(), database)
        bounds = self._next_bounds()
        with database.transaction():
            claimed = database.claim(bounds)
            self._width.claimed(full=not self._asks and len(claimed) >= bounds.rows)
            if claimed:
                if self._unmarked:
                    database.rehearse(claimed)
                self._unmarked = True
                batch = Batch(claimed, self._sender.check, self._sender.waits)
                if batch.to_send or batch.held:
                    timeout = max(0.0, min(SEND_TIMEOUT, database.left()))
                    why = self._sender.send(batch, batch.to_send, timeout)
                marks = self._with_doubts(batch.marks(), claimed)
                aside = database.mark(marks)
        if not claimed:
            # Others have sent what was left, or it waits behind what backs off.
            self._brokers.rest()
            return 0
        self._unmarked = False
        self.sent += len(marks.sent)
        self._tell(marks, claimed)
        self._tell_aside(aside, claimed)
        self._asks = False
        if why is not None:
            self._failed(why)
        elif batch.any_confirmed:
            self._succeeded()
        elif batch.to_send and marks.refused:
            self._brokers.rest()  # they have answered, and took nothing
        return len(claimed)

    def _next_bounds(self) -> Bounds:
        bounds = self._bounds._replace(largest=self._sender.largest)
        if not self._asks:
            return bounds._replace(shards=self._width.shards)
        # Of several keys, as one may be of a partition that takes nothing.
        rows, shards = min(_ASKING, bounds.rows), min(_ASKING, bounds.shards)
        return bounds._replace(rows=rows, shards=shards)

    def _with_doubts(self, marks: BatchMarks, rows: Sequence[ClaimedRow]) -> BatchMarks:
        """What a consumer has was sent, by a relay that ended before it could mark that.

        Asked before a row is a dead letter for good: then nobody looks for its answer any more.
        """
        last = {mark.seq for mark in marks.refused if mark.seconds is None}
        if not last or self._statuses is None:
            return marks
        seqs = {row.id: row.seq for row in rows if row.seq in last}
        sent = sorted(seqs[id_] for id_ in self._statuses.with_consumers(list(seqs)))
        return marks._replace(in_doubt=(*marks.in_doubt, *sent))

    def _failed(self, why: str) -> None:
        self._asks = True
        if self._brokers.begin(why):
            log.warning("sender %s: %s; what is to be sent waits", self._name, why)

    def _succeeded(self) -> None:
        if self._brokers.end():
            log.info("sender %s: the brokers take messages again", self._name)

    def _tell(self, marks: BatchMarks, rows: Sequence[ClaimedRow]) -> None:
        """A line for each kind of refusal that is new, however many rows it is said of."""
        by_seq = {row.seq: row for row in rows}
        if marks.too_late:
            log.error(
                "sender %s: %d requests unanswered, not sent again as consumers may have forgotten"
                " them, first %s",
                self._name, len(marks.too_late), by_seq[marks.too_late[0]].id,
            )  # fmt: skip
        kinds: dict[tuple[bool, str], list[BackingOff]] = {}
        for mark in marks.refused:
            if mark.seconds is None or by_seq[mark.seq].failures == 0:
                kinds.setdefault((mark.seconds is None, mark.refusal.code), []).append(mark)
        for (dead, code), refused in kinds.items():
            first, number = by_seq[refused[0].seq].id, len(refused)
            why = f"{code}: {refused[0].refusal.error}"
            if dead:
                log.error(
                    "sender %s: %d dead letters of the outbox, first %s: %s; look at them with"
                    " `oncepool outbox list`, then `outbox retry` or `outbox drop`",
                    self._name, number, first, why,
                )  # fmt: skip
            else:
                log.warning(
                    "sender %s: %d requests not sent, to be tried again, first %s: %s",
                    self._name, number, first, why,
                )  # fmt: skip

    def _tell_aside(self, aside: Sequence[SetAside], rows: Sequence[ClaimedRow]) -> None:
        ids = {row.seq: row.id for row in rows}
        for one in aside:
            log.error(
                "sender %s: request %s is a dead letter of the outbox, as what became of it"
                " can't be written: %s",
                self._name, ids[one.seq], one.why,
            )  # fmt: skip
