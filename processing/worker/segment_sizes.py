"""How many requests share a savepoint: fewer of types that failed lately. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from processing.worker.task import Task


class SegmentSizes:
    """By type."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._failed: dict[str, int] = {}
        """Of types that failed lately."""
        self.apart: set[str] = set()
        """Types that handle savepoints by hand, or leave some: they share no segment."""

    def next_of(self, tasks: Sequence[Task], position: int) -> Sequence[Task]:
        """The segment that begins there."""
        first = tasks[position]
        if first.handler is not None and first.handler.batch:
            return tasks[position:]  # a batch is one segment; it never shares its list
        window = tasks[position : position + self._most]
        size = min(self._failed.get(t.envelope.type, self._most) for t in window)
        if self.apart:
            places = (n for n, t in enumerate(window) if t.envelope.type in self.apart)
            size = min(size, max(1, next(places, size)))
        return window[:size]

    def failed(self, tasks: Iterable[Task]) -> None:
        """One of these failed: each of their types goes alone for now."""
        self._failed.update((task.envelope.type, 1) for task in tasks)

    def went_well(self, task: Task) -> None:
        """A type that failed gets larger segments again while it does not."""
        size = self._failed.get(task.envelope.type)
        if size is None:
            return
        if size * 2 >= self._most:
            del self._failed[task.envelope.type]
        else:
            self._failed[task.envelope.type] = size * 2
