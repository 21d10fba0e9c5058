"""Due rows of types that have no handler here: whom they are left to, by the journal alone.

Whoever does not know a type takes its rows only to count a try, and in the end to give them up. So
it comes last: it takes what is overdue by some time, of types of which nobody else had a claim in
that time. Who knows a type takes its rows within a second or two, or holds claims of it while more
wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from feedback.contract.record import claim_token
from feedback.journal.connections import Connection
from feedback.journal.queries import execute


class UnknownTypes:
    """What one instance leaves to others, over time."""

    def __init__(self, patience: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        """`patience`: seconds that a row is left to others; 0: types are all the same."""
        self.patience = patience
        self._clock = clock
        self._seen: dict[str, float] = {}
        """Type -> when another instance was seen to hold a claim of it."""

    def held(
        self, connection: Connection, instance: str, types: Iterable[str], lease: float, schema: str
    ) -> set[str]:
        """Those of some unknown types that others hold claims of, or did a while ago."""
        if not self.patience or not (types := list(types)):
            return set()
        values = {"types": types, "prefix": claim_token(instance, 0)[:-1], "lease": lease}
        found = execute(connection, "types_held_elsewhere", schema, values).fetchall()
        now = self._clock()
        recent = {t: at for t, at in self._seen.items() if now - at < self.patience}
        self._seen = {**recent, **dict.fromkeys((kind for (kind,) in found), now)}
        return self._seen.keys() & set(types)
