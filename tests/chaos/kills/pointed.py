"""An instance whose main process can be killed at named points: ``oncepool run``, armed.

The product has no hooks. Here stand a consumer in place of confluent-kafka's, and a pool in place
of the supervisor, which come by the points between their steps and take orders there.

Of a commit: before it is sent, once it is on its way, and with its answer in the client and not yet
seen. Of records: before and after they are handed to the pool, while a chunk runs. Of partitions:
as they are revoked and assigned, before and after the last commit and the look for a gap; with a
part of a gap done. Of the end: before and after the last commit, before and after leaving.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any

import confluent_kafka

from consumer.__main__ import main
from consumer.intake import group_client
from consumer.intake.offset_metadata import gap_of
from consumer.service import wiring
from feedback.contract.record import OFFSET, Record, is_read_again
from processing.pool.supervisor import Supervisor
from tests.chaos.real.harms import do
from tests.chaos.real.orders import Obedience

ON_ITS_WAY = 0.004
"""Seconds within which bytes that the client has been given may or may not have left."""


class Points:
    """Where this process is, and what it was told to do there."""

    def __init__(self, orders: str) -> None:
        self._obedience = Obedience(orders)
        self._chance = random.Random(os.getpid())
        self.within = ""
        """The callback that runs."""
        self.stopping = False

    def come_by(self, point: str, about: object = "", *, after: float = 0.0) -> None:
        """Does what was ordered for this point, some moment up to `after` seconds later."""
        if (harm := self._obedience.take(point, str(about))) is not None:
            time.sleep(self._chance.uniform(0, after))
            do(harm)

    @contextmanager
    def inside(self, name: str) -> Any:
        """Marks the time of a callback."""
        self.within = name
        try:
            yield
        finally:
            self.within = ""


class PointedConsumer(confluent_kafka.Consumer):
    """Comes by points before and after what it does."""

    points: Points

    def __init__(self, settings: dict[str, Any]) -> None:
        told = settings["on_commit"]
        self._sent: dict[tuple[str, int], int] = {}
        self._fresh = False
        self._ending = False

        def on_commit(error: Any, partitions: Any) -> None:
            if self._fresh and error is None:
                self.points.come_by("commit_answered", _names(partitions))
            told(error, partitions)

        super().__init__({**settings, "on_commit": on_commit})

    def subscribe(self, topics: Any, **told: Any) -> None:
        told["on_assign"] = self._at("assignment", told["on_assign"])
        told["on_revoke"] = self._at("revocation", told["on_revoke"])
        super().subscribe(topics, **told)

    def _at(self, name: str, callback: Callable[..., None]) -> Callable[..., None]:
        def armed(consumer: Any, partitions: Sequence[Any]) -> None:
            if not partitions or self._ending:
                callback(consumer, partitions)
                return
            self.points.come_by(f"{name}_begins", _names(partitions))
            with self.points.inside(name):
                callback(consumer, partitions)
            self.points.come_by(f"{name}_over", _names(partitions))

        return armed

    def commit(self, **what: Any) -> Any:
        offsets = what["offsets"]
        self._fresh = any(p.offset > self._sent.get((p.topic, p.partition), -1) for p in offsets)
        self._sent |= {(p.topic, p.partition): p.offset for p in offsets}
        name = "commit" if self._fresh else "stop_commit" if self.points.stopping else "mark"
        if self.points.within == "revocation":
            name = "last_commit"
        self.points.come_by(f"{name}_before", _names(offsets))
        answer = super().commit(**what)
        self.points.come_by(f"{name}_sent", _names(offsets), after=ON_ITS_WAY)
        return answer

    def committed(self, partitions: Any, timeout: float) -> Any:
        assigned = self.points.within == "assignment"
        if assigned:
            self.points.come_by("gap_before_it_is_read", _names(partitions))
        found = super().committed(partitions, timeout)
        gaps = [p for p in found if p.error is None and gap_of(p.offset, p.metadata) is not None]
        if assigned and gaps:
            self.points.come_by("gap_read", _names(gaps))
        return found

    def close(self) -> None:
        self._ending = True
        self.points.come_by("leaving")
        super().close()
        self.points.come_by("left")


class PointedPool(Supervisor):
    """Comes by points as records pass."""

    points: Points

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._again: set[tuple[Any, ...]] = set()
        """What was read again and is not finished."""

    def submit(self, records: Sequence[Record], size: int | None = None) -> None:
        self.points.come_by("hand_out_before", len(records))
        self._again |= {r[: OFFSET + 1] for r in records if is_read_again(r)}
        super().submit(records, size)
        self.points.come_by("handed_out", len(records))

    def step(self, timeout: float) -> None:
        super().step(timeout)
        if any(worker.chunks for worker in self._pool.workers.values()):
            self.points.come_by("chunk_runs", self.in_hand)

    def take_departed(self) -> tuple[list[Record], list[Record]]:
        finished, given_up = super().take_departed()
        before = len(self._again)
        self._again -= {r[: OFFSET + 1] for r in finished}
        if before > len(self._again) > 0:
            self.points.come_by("gap_half_run", f"{len(self._again)} of {before} left")
        self._again -= {r[: OFFSET + 1] for r in given_up}
        return finished, given_up

    def stop_claims(self) -> None:
        self.points.stopping = True
        super().stop_claims()


def _names(partitions: Sequence[Any]) -> str:
    """Partitions with offsets and metadata, as evidence."""
    return " ".join(f"{p.partition}:{p.offset}:{p.metadata or ''}" for p in partitions)


def arm() -> None:
    """Puts both in their places."""
    PointedConsumer.points = PointedPool.points = Points(os.environ["CHAOS_ORDERS"])
    group_client.Consumer = PointedConsumer  # type: ignore[misc]
    wiring.Supervisor = PointedPool  # type: ignore[misc]


if __name__ == "__main__":
    arm()
    sys.argv[0] = "oncepool"
    main()
