"""What a relay shows at /metrics: its loops, and what is open in its outbox."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from feedback.errors import OncepoolError
from feedback.metrics.exposition import exposition
from feedback.metrics.families import Labels, MetricFamily, family, one
from feedback.metrics.names import (
    OUTBOX_AGE,
    OUTBOX_OLDEST,
    OUTBOX_ROWS,
    RELAY_ENDED,
    RELAY_RESENT,
    RELAY_SENT,
    RELAY_UP,
)
from feedback.outbox.relay.depth import OutboxDepth
from feedback.outbox.relay.loop import LoopState
from processing.logs import get_logger

LOOK_EVERY: Final = 15.0
"""Seconds between two looks at the outbox, while somebody scrapes."""

Depths = Mapping[str, Sequence[OutboxDepth]]
"""By sender."""

log = get_logger("oncepool.relay")


class RelayMetrics:
    """Looks at the outbox while somebody asks. No scrape waits for it. Any thread may ask."""

    def __init__(
        self,
        states: Callable[[], Sequence[LoopState]],
        look: Callable[[], Depths],
        clock: Callable[[], float],
        start: Callable[[Callable[[], None]], object],
    ) -> None:
        """`look` reads the outbox. Raises OncepoolError where that is away.

        `start` has something done elsewhere: see `in_a_thread`.
        """
        self._states = states
        self._look = look
        self._clock = clock
        self._start = start
        self._lock = threading.Lock()
        # All below is guarded by _lock.
        self._due = float("-inf")
        self._depths: Depths = {}
        """What was open when it was looked at."""
        self._read: float | None = None
        """When that was."""
        self._given_up = False
        """The last look has failed."""

    def text(self) -> bytes:
        """The answer to a scrape."""
        return exposition(self.families())

    def families(self) -> list[MetricFamily]:
        """What is shown now. What was seen of the outbox stays, with its age, while it is away."""
        with self._lock:
            if due := self._clock() >= self._due:
                self._due = float("inf")
        if due:
            try:
                self._start(self._look_now)
            except BaseException:  # no thread for it, say
                with self._lock:
                    self._due = self._clock() + LOOK_EVERY
                raise
        with self._lock:
            return [*_of_loops(self._states()), *self._of_outbox()]

    def _look_now(self) -> None:
        depths: Depths | None = None
        try:
            depths = self._look()
        except OncepoolError as error:
            # Where it is away relay_up says so, and the age of what is shown.
            if not self._given_up:
                log.warning("a look at the outbox for metrics failed; its figures grow old",
                            error=str(error))  # fmt: skip
        finally:
            with self._lock:
                now = self._clock()
                self._due = now + LOOK_EVERY
                self._given_up = depths is None
                if depths is not None:
                    self._depths, self._read = depths, now

    def _of_outbox(self) -> list[MetricFamily]:
        if self._read is None:  # an age would hide how old the other relays' figures are
            return []
        rows = [(sender, row) for sender, rows in self._depths.items() for row in rows]
        return [
            family(OUTBOX_ROWS, {(sender, row.state): float(row.number) for sender, row in rows}),
            family(OUTBOX_OLDEST, {(sender, row.state): row.oldest for sender, row in rows}),
            one(OUTBOX_AGE, self._clock() - self._read),
        ]


def _of_loops(states: Sequence[LoopState]) -> list[MetricFamily]:
    """Senders are those of the settings."""
    sent: dict[Labels, float] = {}
    ended: Counter[Labels] = Counter()
    again: Counter[Labels] = Counter()
    up: dict[Labels, float] = {}
    for state in states:
        labels = (state.sender,)
        up[state.sender, state.service] = float(state.other is None)
        outbox = state.sender, "outbox"
        up[outbox] = min(up.get(outbox, 1.0), float(state.database is None))
        if state.sends:
            sent[labels] = state.done
        else:  # statuses and results tell of the same rows, each end once
            ended[labels] += state.done
            again[labels] += state.again
    return [
        family(RELAY_SENT, sent),
        family(RELAY_RESENT, dict(again)),
        family(RELAY_ENDED, dict(ended)),
        family(RELAY_UP, up),
    ]


def in_a_thread(work: Callable[[], None]) -> None:
    """Does it in a thread of its own, which ends with the process."""
    threading.Thread(target=work, name="metrics", daemon=True).start()
