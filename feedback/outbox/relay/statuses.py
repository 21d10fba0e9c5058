"""Statuses of many requests, as many at a time as there is room for."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Final

from feedback.contract.states import State
from feedback.errors import StoreUnavailable
from feedback.outbox.relay.answers import MOST_BYTES
from feedback.outbox.relay.records import LeftOut
from feedback.status.status import Status
from feedback.status.store import StatusStore

log = logging.getLogger("oncepool.relay")

_MOST: Final = 100
LONG: Final = 15.0
"""Seconds after which no more are asked for: who asks has a transaction open, which the database
ends after four times as long."""


class StatusReader:
    """Asks a store for fewer at once where statuses are large, or take too long to come."""

    def __init__(self, store: StatusStore) -> None:
        self._store = store
        self._at_once = _MOST
        self._malformed = LeftOut()

    def read(self, ids: Sequence[str]) -> list[Status | None]:
        """The statuses of the first ids, in their order; of one at least.

        They end with what brings them to MOST_BYTES, when they have taken LONG, and before what
        can't be read. Raises StoreUnavailable where that is the first.
        """
        found: list[Status | None] = []
        size, began = 0, time.monotonic()
        while len(found) < len(ids) and size < MOST_BYTES and time.monotonic() < began + LONG:
            asked = ids[len(found) : len(found) + self._at_once]
            try:
                values = self._values(asked)
            except StoreUnavailable:
                if not found:
                    raise
                break
            for id_, value in zip(asked, values, strict=True):
                found.append(self._decoded(id_, value))
                size += len(value or b"")
                if size >= MOST_BYTES:
                    break
        return found

    def with_consumers(self, ids: Sequence[str]) -> set[str]:
        """Those that some consumer has, as far as their statuses can be read, and in LONG."""
        there: set[str] = set()
        left, end = list(ids), time.monotonic() + LONG
        try:
            while left and time.monotonic() < end:
                found = self.read(left)
                there.update(
                    id_
                    for id_, status in zip(left, found, strict=False)
                    if status is not None and status.state is not State.ACCEPTED
                )
                left = left[len(found) :]
        except StoreUnavailable:
            pass
        return there

    def _decoded(self, id_: str, value: bytes | None) -> Status | None:
        if value is None:
            return None
        try:
            return Status.decode(value)
        except ValueError as problem:
            if number := self._malformed.count():
                log.warning("%d statuses left out, last that of %s: %s", number, id_, problem)
            return None

    def _values(self, ids: Sequence[str]) -> list[bytes | None]:
        fewer, more = max(1, self._at_once // 2), min(_MOST, self._at_once * 2)
        self._at_once = fewer  # also where this fails
        began = time.monotonic()
        values = self._store.read_raw(ids)
        slow = time.monotonic() > began + LONG
        if not slow and sum(len(value or b"") for value in values) < MOST_BYTES:
            self._at_once = more
        return values
