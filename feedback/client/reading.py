"""Reading one status where it is of use but must not cost time while the store is away."""

from __future__ import annotations

import threading
import time

from feedback.backoff import Breaker
from feedback.errors import StoreUnavailable
from feedback.status.status import Status
from feedback.status.store import StatusStore


class CautiousReader:
    """Reads statuses; after a failure it answers None at once until the breaker's pause is over."""

    def __init__(self, store: StatusStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._breaker = Breaker()  # guarded by _lock

    def read(self, id: str) -> Status | None:
        """The status that stands; None where there is none, or the store is away."""
        with self._lock:
            if self._breaker.pause(time.monotonic()):
                return None
        try:
            status = self._store.read([id])[0]
        except StoreUnavailable:
            with self._lock:
                self._breaker.failed(time.monotonic())
            return None
        with self._lock:
            self._breaker.succeeded()
        return status
