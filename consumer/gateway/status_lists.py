"""Lists of statuses: read part by part, bounded in bytes, and few large ones at once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

from consumer.admin.plain_json import to_json
from consumer.gateway.access import Caller
from consumer.gateway.places import Places
from consumer.gateway.problems import HttpProblem
from consumer.gateway.statuses import Statuses, status_json

FIRST_PART: Final = 5
"""Ids of a list that are read at first; then twice as many each time, while statuses are small."""
LARGEST_PART: Final = 50
"""Ids: nobody knows whether the next ones are small, too."""
LARGE_PART: Final = 1024 * 1024
"""Bytes of statuses in a part, from which on fewer are read at once."""
LARGE_LIST: Final = 1024 * 1024
"""Bytes of a list above which it needs a place."""
MOST_BYTES: Final = 32 * 1024 * 1024
"""Of all statuses of a list."""
LARGE_AT_ONCE: Final = 3


class _TooMuch(Exception):
    """`fit`: how many statuses have fewer bytes."""

    def __init__(self, fit: int) -> None:
        super().__init__(fit)
        self.fit = fit


class StatusLists:
    """Reads lists of statuses."""

    def __init__(self, statuses: Statuses) -> None:
        self._statuses = statuses
        self._large = Places(LARGE_AT_ONCE)

    async def read(self, ids: Sequence[str], caller: Caller, held: AsyncExitStack) -> bytes:
        """The statuses of these as JSON, in their order, in a place that `held` gives back.

        Raises HttpProblem: they are too large, or others have all places.
        """
        try:
            return _joined(await self._rows(ids, caller, LARGE_LIST))
        except _TooMuch:
            pass  # nothing of it is held while it waits
        await held.enter_async_context(self._large.place())
        try:
            return _joined(await self._rows(ids, caller, MOST_BYTES))
        except _TooMuch as error:
            raise HttpProblem(
                413,
                "too_large",
                f"these statuses have more than {MOST_BYTES >> 20} MiB together: ask for fewer ids"
                f" at once, {max(1, error.fit)} or fewer",
            ) from None

    async def _rows(self, ids: Sequence[str], caller: Caller, most: int) -> list[bytes]:
        """Each status. Raises _TooMuch."""
        rows: list[bytes] = []
        size, at_once = 0, FIRST_PART
        while len(rows) < len(ids):
            # Part by part: others read in between, and large results are not all held at once.
            part = await self._part(ids[len(rows) : len(rows) + at_once], caller)
            length = sum(map(len, part))
            size += length
            if size > most:
                raise _TooMuch(len(rows))
            rows += part
            more = min(2 * at_once, LARGEST_PART)
            at_once = more if length < LARGE_PART else max(1, at_once // 2)
        return rows

    async def _part(self, ids: Sequence[str], caller: Caller) -> list[bytes]:
        found = await self._statuses.read(ids)
        return [
            status_json(known)
            if known is not None and caller.may_see(known.type)
            else to_json({"id": name, "state": "unknown"})
            for name, known in zip(ids, found, strict=True)
        ]


def _joined(rows: list[bytes]) -> bytes:
    return b"[" + b",".join(rows) + b"]"
