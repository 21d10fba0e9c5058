"""Statuses as they stand, with those that this client has still to write."""

from __future__ import annotations

from collections.abc import Sequence

from feedback.client.pending import Submissions
from feedback.status.sender import StatusSender
from feedback.status.status import Status
from feedback.status.store import StatusStore


class OwnStatuses:
    """Reads statuses: who was told that a request is taken never finds it unknown just after."""

    def __init__(self, store: StatusStore, submissions: Submissions, sender: StatusSender) -> None:
        self._store = store
        self._submissions = submissions
        self._sender = sender

    def read(self, ids: Sequence[str]) -> list[Status | None]:
        """One status an id, in their order; None where there is none. Raises StoreUnavailable."""
        found = self._store.read(ids)
        gaps = [n for n, status in enumerate(found) if status is None and self._is_sent(ids[n])]
        if not gaps:
            return found
        unsent = self._sender.unsent({ids[n] for n in gaps})
        # What is not waiting any more may have been written since the store was asked.
        written = [n for n in gaps if ids[n] not in unsent]
        again = self._store.read([ids[n] for n in written]) if written else []
        late = dict(zip(written, again, strict=True))
        for n in gaps:
            write = unsent.get(ids[n])
            found[n] = late.get(n) if write is None else Status.decode(write.value)
        return found

    def _is_sent(self, id: str) -> bool:
        submission = self._submissions.get(id)
        return submission is not None and submission.delivered
