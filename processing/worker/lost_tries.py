"""What other transactions have cost a chunk: whose time that was, once it is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence


class LostTries:
    """Times of transactions that were undone because another one was in their way.

    What ran in them had to run again. Whose lock it was that nobody got is known only when the
    others have gone on without it: it is charged with all the tries that it was in, and shares them
    with what comes back for the same reason.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives seconds, as time.monotonic()."""
        self._clock = clock
        self._begun = clock()
        self._lost: list[tuple[frozenset[int], float]] = []

    def begin(self) -> None:
        """A transaction begins."""
        self._begun = self._clock()

    def lost(self, indices: Iterable[int]) -> None:
        """It was undone, for one of these indices of its chunk."""
        self._lost.append((frozenset(indices), self._clock() - self._begun))

    def charged_to(self, alone: Sequence[int]) -> list[float]:
        """Seconds for each of those that come back; what several are in they share."""
        seconds = dict.fromkeys(alone, 0.0)
        for indices, took in self._lost:
            mine = indices.intersection(seconds)
            for index in mine:
                seconds[index] += took / len(mine)
        return [seconds[index] for index in alone]
