"""Shards that another session keeps locked, so that nothing that is due in them is sent."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from feedback.outbox.relay.records import LeftOut

log = logging.getLogger("oncepool.relay")

LOOK_EVERY: Final = 10.0
"""Seconds between two looks."""
KEPT_AFTER: Final = 30.0
"""Seconds with one transaction after which a shard counts as kept: a relay at work has another one
with each batch."""


class LockedShard(NamedTuple):
    """One with something due in it that another transaction has locked."""

    shard: int
    transaction: str
    """Its id."""
    session: str
    """Whose it is, as an operator finds it."""


class LooksAtShards(Protocol):
    """Of RelayDatabase."""

    def locked(self) -> Sequence[LockedShard]:
        """Shards that have something due and are locked."""


class KeptShards:
    """Looks now and then, and says in the log what is kept."""

    def __init__(self, sender: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.why: str | None = None
        """What is not sent; None where nothing is known to be kept."""
        self._sender = sender
        self._clock = clock
        self._look_at = clock()
        self._since: dict[tuple[int, str], float] = {}
        """When each shard was first seen with each transaction that has it."""
        self._lines = LeftOut(clock)

    def look(self, database: LooksAtShards) -> None:
        """Where it is time for it. Raises psycopg.Error."""
        now = self._clock()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_EVERY
        found = database.locked()
        before = self._since
        self._since = {one[:2]: before.get(one[:2], now) for one in found}
        kept = [one for one in found if now - self._since[one[:2]] >= KEPT_AFTER]
        if not kept:
            if self.why is not None:
                log.info("sender %s: what was locked of its shards is free", self._sender)
            self.why = None
            return
        sessions = ", ".join(sorted({one.session for one in kept}))
        self.why = (
            f"{len(kept)} shards are kept locked by another session ({sessions}): what is due in"
            " them is not sent before its transaction ends"
        )
        if self._lines.count():
            log.warning("sender %s: %s", self._sender, self.why)
