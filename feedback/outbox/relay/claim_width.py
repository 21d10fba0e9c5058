"""How many shards a relay takes at once. Pure."""

from __future__ import annotations

from typing import Final

_LEAST: Final = 4


class ClaimWidth:
    """All that it may while there is little in each, few while these fill a batch.

    To find the first row of a shard passes by all of its rows that were sent until autovacuum has
    been there. Where a batch comes from few shards, that is done for few.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.shards = most
        """Of the next claim."""

    def claimed(self, *, full: bool) -> None:
        """What the last claim of so many shards has found: as many rows as a batch has, or fewer.

        So no shard waits for longer than it takes to send what others have in plenty.
        """
        self.shards = max(min(_LEAST, self._most), self.shards // 2) if full else self._most
