"""What is measured of a request: each once, and nothing that did not run."""

from __future__ import annotations

import pytest

from feedback.contract.states import OK, State
from feedback.metrics.durations import DONE, RUN, SUM, WAIT, DurationKey
from processing.handlers.outcomes import Outcome
from processing.worker.chunk_durations import ChunkDurations
from processing.worker.reading import Limits, read_task
from processing.worker.task import Task
from tests.support.executor import chunk_run

SENT = 1_700_000_000.0


def task(
    index: int = 0, kind: str = "pay", *, waited: float | None = 2.0, ran: float = 0.3
) -> Task:
    from processing import App

    app = App()
    app.handler("pay")(lambda payload: payload)
    app.handler("bill")(lambda payload: payload)
    headers = [("ce_id", f"r-{index}".encode()), ("ce_type", kind.encode())]
    record = ("t", 0, index, int(SENT * 1000), b"k", b"{}", headers, kind, None)
    made = read_task(app, index, record, Limits(10.0, 1000))
    assert isinstance(made, Task)
    if waited is not None:
        made.started, made.seconds = SENT + waited, ran
    made.end(Outcome(State.DONE, OK))
    return made


def seconds(found: dict[DurationKey, float]) -> dict[tuple[str, int], float]:
    """What was measured, by type, summed."""
    return {(kind, what): n for (kind, what, bucket), n in found.items() if bucket == SUM}


def number(found: dict[DurationKey, float]) -> dict[tuple[str, int], float]:
    """How many requests that was."""
    numbers: dict[tuple[str, int], float] = {}
    for (kind, what, bucket), n in found.items():
        if bucket != SUM:
            numbers[kind, what] = numbers.get((kind, what), 0) + n
    return numbers


def test_plain_ends_are_measured_by_type() -> None:
    durations = ChunkDurations()
    durations.plain([task(0), task(1, waited=4.0), task(2, "bill")])
    assert number(durations.counts) == {
        ("pay", RUN): 2, ("pay", WAIT): 2, ("pay", DONE): 2,
        ("bill", RUN): 1, ("bill", WAIT): 1, ("bill", DONE): 1,
    }  # fmt: skip
    found = seconds(durations.counts)
    assert (found["pay", RUN], found["pay", WAIT]) == pytest.approx((0.6, 6.0))
    assert found["pay", DONE] == pytest.approx(6.6)


def test_both_ways_measure_the_same_of_what_is_done() -> None:
    plain, other = ChunkDurations(), ChunkDurations()
    plain.plain([task()])
    other.ended(task())
    assert number(plain.counts) == number(other.counts)
    assert seconds(plain.counts) == pytest.approx(seconds(other.counts))


@pytest.mark.parametrize("state", [State.FAILED, State.WAITING, State.REJECTED, State.IN_DOUBT])
def test_what_is_not_done_ran_and_waited(state: State) -> None:
    one = task()
    one.end(Outcome(state, "code"))
    durations = ChunkDurations()
    durations.ended(one)
    assert number(durations.counts) == {("pay", RUN): 1, ("pay", WAIT): 1}


def test_what_comes_of_it_in_the_end_decides_whether_it_is_done() -> None:
    one = task()
    one.final = Outcome(State.SUPERSEDED, "coalescing")
    durations = ChunkDurations()
    durations.ended(one)
    assert ("pay", DONE) not in number(durations.counts)


def test_a_claimed_row_has_no_wait_and_is_done_since_it_was_sent() -> None:
    """Its wait was one on purpose."""
    one = task(waited=100.0)
    one.claim = "token"
    durations = ChunkDurations()
    durations.ended(one)
    assert number(durations.counts) == {("pay", RUN): 1, ("pay", DONE): 1}
    assert seconds(durations.counts)["pay", DONE] == pytest.approx(100.3)


def test_what_did_not_run_is_not_measured() -> None:
    durations = ChunkDurations()
    durations.ended(task(waited=None))
    assert durations.counts == {}


def test_a_chunk_measures_where_somebody_wants_it() -> None:
    tasks = [task(n) for n in range(3)]
    chunk = chunk_run([one.record for one in tasks])
    chunk.settle_done(tasks[:2])
    assert chunk.finish().durations is None

    chunk = chunk_run([one.record for one in tasks])
    chunk.tally.durations = ChunkDurations()
    chunk.settle_done(tasks[:2])
    chunk.settle_done([])
    chunk.settle(tasks[2:])
    report = chunk.finish()
    assert report.counts == {("pay", "done", "ok"): 3}
    assert number(report.durations or {})["pay", DONE] == 3


def test_times_that_no_clock_agrees_on_take_no_time() -> None:
    durations = ChunkDurations()
    durations.plain([task(waited=-50.0)])
    found = seconds(durations.counts)
    assert (found["pay", WAIT], found["pay", DONE]) == (0.0, 0.0)
