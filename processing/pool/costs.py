"""How long a request of each kind takes, learnt from what workers report."""

from __future__ import annotations

from typing import Final

CHUNK_SECONDS: Final = 0.05
"""What a chunk should take; a kind whose requests take longer each goes alone."""

WEIGHT: Final = 0.3
"""How much one new measurement counts against all earlier ones."""

OVERHEAD: Final = 0.002
"""Seconds that a chunk costs besides its handlers."""


class Costs:
    """Mean seconds per request and kind, recent measurements weighing most.

    A request for which no handler runs, as a copy that is answered or a message that cannot be
    read, takes none: it counts as well, or its kind would never be known.
    """

    def __init__(self) -> None:
        self._means: dict[str, float] = {}
        self.version = 0
        """Raised whenever a kind that went alone may share chunks from now on."""

    def observe(self, kind: str, count: int, seconds: float) -> None:
        """Takes a measurement: `count` requests of a kind took `seconds` together."""
        if count <= 0:
            return
        mean = seconds / count
        known = self._means.get(kind)
        alone = known is None or known > CHUNK_SECONDS
        if known is not None:
            weight = 1.0 - (1.0 - WEIGHT) ** count
            mean = known + weight * (mean - known)
        self._means[kind] = mean
        if alone and mean <= CHUNK_SECONDS:
            self.version += 1

    def of(self, kind: str) -> float | None:
        """Mean seconds of one request, or None where it has to go alone.

        Alone go kinds that take longer than a chunk should, and kinds without a measurement.
        """
        mean = self._means.get(kind)
        return None if mean is None or mean > CHUNK_SECONDS else mean

    def expected(self, kind: str) -> float:
        """Seconds that a request is expected to keep its worker, measured or not."""
        return OVERHEAD + self._means.get(kind, CHUNK_SECONDS)
