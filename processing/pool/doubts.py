"""When requests in doubt are wanted, so that their checks are asked. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from feedback.contract.record import Record, claim_of, is_due, size_of
from processing.ipc.frames import NO_ORDER, WantDoubts

LOOK_EVERY: Final = 5.0
"""Seconds between two looks, while none is found."""
SHARE: Final = 4
"""One of so many workers may be busy with them, and one in any case: a check may take long."""


class WantedDoubts:
    """Few at a time, and the next ones as soon as those have been asked about."""

    def __init__(self, workers: int) -> None:
        self.types: tuple[str, ...] = ()
        """Those that have checks here."""
        self._most = max(1, workers // SHARE)
        self._in_hand: set[str] = set()
        self._look_at = 0.0

    def want(self, now: float, elsewhere: Collection[str]) -> WantDoubts | None:
        """The frame that asks the maintenance process for some; none of types run `elsewhere`."""
        if not self.types or self._in_hand or now < self._look_at:
            return None
        types = tuple(kind for kind in self.types if kind not in elsewhere)
        self._look_at = now + LOOK_EVERY
        return WantDoubts(types, self._most) if types else None

    def came(self, records: Collection[Record]) -> int:
        """Some came; bytes of them."""
        self._in_hand.update(claim_of(record)[0] for record in records)
        return size_of(records)

    def went(self, records: Iterable[Record]) -> None:
        """Records are no longer in hand: once none of these is, there may be others."""
        if not self._in_hand:
            return
        for record in records:
            if is_due(record) and claim_of(record)[1] == NO_ORDER:
                self._in_hand.discard(claim_of(record)[0])
        if not self._in_hand:
            self._look_at = float("-inf")
