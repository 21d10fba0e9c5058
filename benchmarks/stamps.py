"""Time stamps of an idle request on its way through Oncepool's processes, and what they say.

One request is asked at a time, so that what happens between its begin and its end is its own and
needs no name. A process appends a line for each stamp to a file of its own; the clock is that which
all processes of a machine share. What a stamp stands behind is wrapped from outside.
"""

from __future__ import annotations

import functools
import os
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

FOLDER = "STAMPS"
"""Environment variable: where the files go."""
FETCHED = "sent, with the broker, fetched by main"
COMMIT_SENT = "main: from message to commit"
ANSWERED = "the commit and its answer"
HANDED = "main: from the answer to a worker's socket"
TAKEN = "into the worker's main thread"
ENTERED = "look-up, until the handler"
WRITTEN = "handler, BEGIN, row, COMMIT, status made"
SENDING = "into the thread that sends statuses"
READ = "Redis, the hint, the client's read"
STEPS = (FETCHED, COMMIT_SENT, ANSWERED, HANDED, TAKEN, ENTERED, WRITTEN, SENDING)
"""In their order, each named by what is over with it; READ is over with the answer."""
SLOWEST = 0.01
"""Of all requests, those whose steps are told beside the median."""

Wanted = Callable[..., bool]


class Stamps:
    """Who writes those of one process."""

    def __init__(self, folder: Path) -> None:
        path = folder / str(os.getpid())
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def stamp(self, step: str) -> None:
        """That is over now."""
        os.write(self._file, f"{time.monotonic()} {step}\n".encode())

    def before(self, owner: Any, name: str, step: str) -> None:
        """A stamp before each call of `owner.name`."""
        called = getattr(owner, name)

        @functools.wraps(called)
        def call(*given: Any, **named: Any) -> Any:
            self.stamp(step)
            return called(*given, **named)

        setattr(owner, name, call)

    def after(
        self, owner: Any, name: str, step: str, wanted: Wanted = lambda *_: True
    ) -> None:  # fmt: skip
        """A stamp after each call whose arguments are `wanted`."""
        called = getattr(owner, name)

        @functools.wraps(called)
        def call(*given: Any, **named: Any) -> Any:
            result = called(*given, **named)
            if wanted(*given):
                self.stamp(step)
            return result

        setattr(owner, name, call)


def watch_main(folder: Path) -> None:
    """Before the main process is started."""
    from consumer.intake import kafka
    from processing.ipc.channel import Channel
    from processing.ipc.frames import RunChunk

    stamps = Stamps(folder)
    stamps.after(kafka, "records_of", FETCHED)
    stamps.after(kafka, "send_offsets", COMMIT_SENT)
    stamps.before(kafka.Kafka, "_on_commit", ANSWERED)
    stamps.after(Channel, "send", HANDED, lambda _self, frame: isinstance(frame, RunChunk))


def watch_worker(folder: Path) -> None:
    """Before its first chunk."""
    from feedback.status.redis_store import RedisStatusStore
    from feedback.status.sender import StatusSender
    from processing.worker.calls import Calls
    from processing.worker.executor import Executor

    stamps = Stamps(folder)
    stamps.before(Executor, "begin", TAKEN)
    stamps.before(Calls, "one", ENTERED)
    stamps.before(StatusSender, "put", WRITTEN)
    stamps.before(RedisStatusStore, "write", SENDING)


def stamps_in(folder: Path) -> dict[str, list[float]]:
    """Step -> when it was over, ascending."""
    found: dict[str, list[float]] = {step: [] for step in STEPS}
    for path in folder.iterdir():
        for line in path.read_text().splitlines():
            at, _, step = line.partition(" ")
            found[step].append(float(at))
    return {step: sorted(times) for step, times in found.items()}


def durations(
    begin: float, end: float, stamps: Mapping[str, Sequence[float]]
) -> dict[str, float] | None:
    """Step -> seconds, of one request; None where one of its stamps is missing."""
    found: dict[str, float] = {}
    last = begin
    for step in STEPS:
        times = stamps[step]
        at = bisect_right(times, last)
        if at == len(times) or times[at] > end:
            return None
        found[step] = times[at] - last
        last = times[at]
    return {**found, READ: end - last}


def summary(requests: Sequence[Mapping[str, float]]) -> list[dict[str, Any]]:
    """Milliseconds of each step: the median of all, and the mean of the slowest."""
    ordered = sorted(requests, key=lambda one: sum(one.values()))
    slowest = ordered[-max(1, round(SLOWEST * len(ordered))) :] if ordered else []
    return [
        {
            "step": step,
            "median": 1000 * median(one[step] for one in ordered),
            "slow": 1000 * fmean(one[step] for one in slowest),
        }
        for step in (*STEPS, READ)
        if ordered
    ]
