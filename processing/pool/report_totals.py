"""What workers report of what they did, added up until it is handed over. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from feedback.metrics.durations import DurationKey
from processing.ipc.frames import CountKey, Counts, Measurements, Report


class ReportTotals:
    """Adds up reports; `take` hands over."""

    def __init__(self) -> None:
        self.counts: Counter[CountKey] = Counter()
        """Requests that have ended."""
        self._durations: dict[DurationKey, float] = {}
        self._chunks: Counter[int] = Counter()
        self._statuses_dropped = 0

    def report(self, report: Report, requests: int) -> None:
        """A chunk of so many requests is over."""
        self.counts.update(report.counts)
        if report.durations is None:  # nobody wants them
            return
        self._add(report.durations)
        if requests:
            self._chunks[requests] += 1
        self._statuses_dropped += report.statuses_dropped

    def take(self, types: list[str]) -> list[Counts | Measurements]:
        """What has come since the last call, for the maintenance process. `types`: the app's."""
        frames: list[Counts | Measurements] = []
        if self._chunks:
            chunks, dropped = dict(self._chunks), self._statuses_dropped
            frames.append(Measurements(types, self._durations, chunks, dropped))
            self._durations, self._statuses_dropped = {}, 0
            self._chunks.clear()
        if self.counts:
            frames.append(Counts(dict(self.counts)))
            self.counts.clear()
        return frames

    def put_back(self, frame: Counts | Measurements) -> None:
        """What could not be handed over: it goes with what comes next."""
        if isinstance(frame, Counts):
            self.counts.update(frame.counts)
            return
        self._add(frame.durations)
        self._chunks.update(frame.chunks)
        self._statuses_dropped += frame.statuses_dropped

    def _add(self, more: Mapping[DurationKey, float]) -> None:
        durations = self._durations
        for key, n in more.items():
            durations[key] = durations.get(key, 0) + n
