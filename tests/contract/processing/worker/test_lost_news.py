"""Others that a transaction settles, where the answer to its COMMIT is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from feedback.contract.counts import Count
from feedback.contract.states import State
from processing.ipc.frames import Suspect
from tests.support.proxy import Link, Proxy, says_commit
from tests.support.queue import INSTANCE, Queue


class Undoing(Proxy):
    """Breaks the connection under the next COMMIT, which the server does not hear, if told to."""

    armed = False

    def _look_at_requests(self, link: Link, units: list[bytes]) -> None:
        super()._look_at_requests(link, units)
        if self.armed and any(map(says_commit, units)):
            self.armed = False
            link.cut()


@pytest.fixture
def wire(queue: Queue) -> Iterator[Undoing]:
    """Stands before the database of the queue's executor."""
    with Undoing.of(queue.url) as made:
        queue.executor.close()
        queue.executor = queue.another(made.before(queue.url), instance=INSTANCE)
        yield made


def test_what_it_superseded_is_told_and_counted_once(queue: Queue, wire: Undoing) -> None:
    older, newer = (
        queue.record(name, "count", {"sku": "s"}, ce_time=f"2026-01-01T00:00:0{n}Z")
        for n, name in enumerate("ab")
    )
    queue.run(older)
    wire.lose_answer(b"COMMIT\0")
    report = queue.run(newer)
    assert (wire.lost, [*report.unclear]) == (1, [0])
    assert queue.told("a")["superseded_by"] == "b"
    gone = Count("count", State.SUPERSEDED, "superseded")
    assert report.counts[gone] == 1
    assert gone not in queue.run(newer, suspect=Suspect(None, (), ())).counts
    assert queue.told("b")["state"] == "waiting"


def test_what_it_asked_for_is_told(queue: Queue, wire: Undoing) -> None:
    wire.lose_answer(b"COMMIT\0")
    report = queue.run(queue.record("o", "order", {}))
    assert (wire.lost, [*report.unclear]) == (1, [0])
    assert queue.told("named")["state"] == "waiting"
    assert "o" not in {status["id"] for status in queue.statuses}, "which is looked up first"


def test_of_what_was_undone_nobody_is_told(queue: Queue, wire: Undoing) -> None:
    queue.run(queue.record("a", "count", {"sku": "s"}, ce_time="2026-01-01T00:00:00Z"))
    wire.armed = True
    report = queue.run(queue.record("b", "count", {"sku": "s"}, ce_time="2026-01-01T00:00:01Z"))
    assert (wire.armed, [*report.unclear]) == (False, [0])
    assert queue.rows() == {"a": ("waiting", "coalescing")}
    assert queue.told("a")["state"] == "waiting"
    assert report.counts == {}
