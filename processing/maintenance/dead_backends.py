"""Database sessions of dead workers: what one may yet commit waits for its end, and nothing else.

Used on the database thread alone.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Final

from feedback.backend import Backend
from feedback.journal.backends import END_WAIT, end_backends
from feedback.journal.connections import Connection
from processing.logs import BoundLogger
from processing.stuck_sessions import ADVICE, NAMED, SAY_AGAIN

LOOK_AGAIN: Final = 0.5
"""Seconds after which somebody looks again whether they have ended."""


class DeadBackends:
    """Ends them, and says which stay."""

    def __init__(self, log: BoundLogger) -> None:
        self._log = log
        self._stay: set[Backend] = set()
        """They were asked to end, and have not."""
        self._said: dict[tuple[Backend, str], float] = {}

    def standing(
        self,
        connection: Connection,
        held: Iterable[tuple[Iterable[Backend], Collection[str]]],
        what: str,
    ) -> set[Backend]:
        """Ends sessions; returns those that stay, of which the log tells.

        `held`: sessions, and what waits for all of these, by name, all of it `what`. Blocks for a
        moment where a session is asked for the first time. Raises psycopg.Error where the database
        is away.
        """
        waiting: defaultdict[Backend, list[str]] = defaultdict(list)
        for backends, names in held:
            for backend in backends:
                waiting[backend] += names
        known = self._stay & waiting.keys()
        left = set(end_backends(connection, waiting.keys() - known, END_WAIT))
        left.update(end_backends(connection, known, 0.0))
        self._stay = (self._stay - waiting.keys()) | left
        self._said = {key: at for key, at in self._said.items() if key[0] in self._stay}
        for backend in left:
            self._say(backend, waiting[backend], what)
        return left

    def _say(self, backend: Backend, names: Collection[str], what: str) -> None:
        now = time.monotonic()
        if now < self._said.get((backend, what), float("-inf")) + SAY_AGAIN:
            return
        self._said[(backend, what)] = now
        self._log.error(
            f"a dead worker's database session does not end: {what} wait for it, as it may commit"
            " yet", backend_pid=backend[0], backend_start=backend[1], count=len(names),
            first=sorted(names)[:NAMED], advice=ADVICE,
        )  # fmt: skip
