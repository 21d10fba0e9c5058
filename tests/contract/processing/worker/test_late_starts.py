"""A chunk starts nothing more once its first start is a while ago: the rest is given back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from processing import Request
from processing.worker import chunk_run
from processing.worker.chunk_run import STARTS_FOR, ChunkRun
from stack import Stack
from tests.support.each_kind import each_kind
from tests.support.executor import Bench, FakeGate

SLOW = STARTS_FOR * 0.6


class Clock:
    """Goes on while a handler runs, and at no other time."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(chunk_run, "monotonic", made)
    return made


@pytest.fixture
def ran() -> list[str]:
    return []


@pytest.fixture
def bench(stack: Stack, schema: str, ran: list[str], clock: Clock) -> Iterator[Bench]:
    """A payload says how many seconds its handler takes."""

    def run(request: Request[Any]) -> None:
        ran.append(request.id)
        clock.now += request.payload["takes"]
        if request.payload.get("fails") and ran.count(request.id) == 1:
            raise ValueError

    made = Bench(each_kind(run), stack.database, schema)
    yield made
    made.executor.close()
    made.app.stop_worker()


def a_chunk(bench: Bench, *kinds: str, takes: float = SLOW, **more: Any) -> ChunkRun:
    """Its requests are 0, 1, 2 ..., and the first carries what is said `more`."""
    payloads = [{"takes": takes, **({} if n else more)} for n in range(len(kinds))]
    records = [
        bench.record(str(n), kind, payload, key=b"k")
        for n, (kind, payload) in enumerate(zip(kinds, payloads, strict=True))
    ]
    return ChunkRun(1, "token", records, None, FakeGate())


@pytest.mark.parametrize("kind", ["one", "piped", "plain", "pure", "charge"])
def test_what_is_behind_slow_ones_is_given_back_unstarted(
    bench: Bench, ran: list[str], kind: str
) -> None:
    chunk = a_chunk(bench, *[kind] * 5)
    report = bench.run_chunk(chunk)
    assert (sorted(report.returned), report.unclear, ran) == ([2, 3, 4], [], ["0", "1"])
    assert [bench.state(str(n)) for n in range(2)] == [("done", "ok")] * 2
    assert report.times[kind][0] == 2, "and what they took is told"


@pytest.mark.parametrize("kind", ["one", "plain", "pure", "charge"])
def test_one_is_started_however_long_it_took_to_come_to_it(
    bench: Bench, ran: list[str], clock: Clock, kind: str
) -> None:
    chunk = a_chunk(bench, kind, kind, takes=STARTS_FOR * 2)
    clock.now += STARTS_FOR * 3
    report = bench.run_chunk(chunk)
    assert (report.returned, ran) == ([1], ["0"])


@pytest.mark.parametrize("second", ["many", "more", "one", "pure", "charge"])
@pytest.mark.parametrize("first", ["many", "more"])
def test_a_batch_is_started_whole_or_not_at_all(
    bench: Bench, ran: list[str], first: str, second: str
) -> None:
    """It is one call: what takes long in it cannot be told apart. What comes behind it can."""
    if first == second:
        second = "pure"
    chunk = a_chunk(bench, first, first, first, second, second)
    report = bench.run_chunk(chunk)
    assert (sorted(report.returned), ran) == ([3, 4], ["0", "1", "2"])


@pytest.mark.parametrize("batch", ["many", "more"])
def test_a_batch_behind_slow_ones_is_given_back(bench: Bench, ran: list[str], batch: str) -> None:
    report = bench.run_chunk(a_chunk(bench, "plain", "plain", batch, batch))
    assert (sorted(report.returned), ran) == ([2, 3], ["0", "1"])


@pytest.mark.parametrize("kind", ["one", "piped"])
def test_what_was_started_and_taken_back_may_be_started_again(
    bench: Bench, ran: list[str], kind: str
) -> None:
    """The first has failed, and with it its segment: it is its own end that is to be found out."""
    report = bench.run_chunk(a_chunk(bench, kind, kind, kind, takes=STARTS_FOR * 2, fails=True))
    assert (sorted(report.returned), ran) == ([1, 2], ["0", "0"])
    assert bench.state("0") == ("done", "ok")
