"""What reports add up to, what is handed over, and under what a death counts."""

from __future__ import annotations

import signal

import pytest

from feedback.metrics.durations import RUN, SUM, Durations
from processing.ipc.frames import Counts, Measurements, Report, decode, encode
from processing.ipc.progress import Running
from processing.pool.chunk import Chunk
from processing.pool.report_totals import ReportTotals
from processing.pool.worker_deaths import death_cause
from processing.pool.worker_state import WORKER_STATES, Terminated, Worker

PLAIN = Report(1, [], [], {}, {("pay", "done", "ok"): 3}, database_up=True)


def with_durations(*seconds: float) -> Report:
    durations = Durations()
    durations.add("pay", RUN, list(seconds))
    return PLAIN._replace(durations=durations.counts, statuses_dropped=2)


def test_where_nobody_measures_there_are_counts_alone() -> None:
    totals = ReportTotals()
    totals.report(PLAIN, 3)
    totals.report(PLAIN, 3)
    assert totals.take(["pay"]) == [Counts({("pay", "done", "ok"): 6})]
    assert totals.take(["pay"]) == []


def test_reports_add_up_until_they_are_handed_over() -> None:
    totals = ReportTotals()
    totals.report(with_durations(0.0005, 0.4), 2)
    totals.report(with_durations(0.0005), 2)
    measured, counts = totals.take(["pay"])
    assert counts == Counts({("pay", "done", "ok"): 6})
    assert isinstance(measured, Measurements)
    assert measured.durations[("pay", RUN, 0)] == 2
    assert measured.durations[("pay", RUN, SUM)] == pytest.approx(0.401)
    assert (measured.chunks, measured.statuses_dropped) == ({2: 2}, 4)
    assert totals.take(["pay"]) == []
    totals.report(with_durations(0.0005), 1)
    measured, _ = totals.take(["pay"])
    assert (measured.chunks, measured.durations[("pay", RUN, 0)]) == ({1: 1}, 1)  # type: ignore[union-attr]


def test_what_could_not_be_handed_over_goes_with_what_comes_next() -> None:
    totals = ReportTotals()
    totals.report(with_durations(0.0005), 2)
    for frame in totals.take([]):
        totals.put_back(frame)
    totals.report(with_durations(0.0005), 1)
    measured, counts = totals.take(["pay"])
    assert counts == Counts({("pay", "done", "ok"): 6})
    assert isinstance(measured, Measurements)
    assert measured.durations[("pay", RUN, 0)] == 2
    assert (measured.chunks, measured.statuses_dropped) == ({2: 1, 1: 1}, 4)


def test_what_was_handed_over_is_no_longer_changed() -> None:
    totals = ReportTotals()
    totals.report(with_durations(0.1), 1)
    measured, _ = totals.take(["pay"])
    before = repr(measured)
    totals.report(with_durations(0.1), 1)
    assert repr(measured) == before


def test_frames_cross_the_channel() -> None:
    report = with_durations(0.002, 3.0)
    assert decode(encode(report)[4:]) == report
    frame = Measurements(["pay"], dict(report.durations or {}), {3: 1}, 0)
    assert decode(encode(frame)[4:]) == frame


def worker(**facts: object) -> Worker:
    made = Worker(0, 0.0, ready=True)
    for name, value in facts.items():
        setattr(made, name, value)
    return made


TOLD = Terminated(Running(1, 0, 0.0, 1.0), 1.0, "timeout")


@pytest.mark.parametrize(
    "dead,cause,counted",
    [
        (worker(leaving=True), "exit code 0", None),
        (worker(leaving=True, chunks=[Chunk(1, 0)]), "signal SIGKILL", "SIGKILL"),
        (worker(ready=False), "exit code 1", "start"),
        (worker(ready=False), "[Errno 12] Cannot allocate memory", "start"),
        (worker(), "exit code 3", "exit"),
        (worker(), "signal SIGSEGV", "SIGSEGV"),
        (worker(terminated=TOLD), f"signal {signal.SIGKILL.name}", "timeout"),
        (worker(terminated=TOLD._replace(why="cancelled")), "exit code 1", "cancelled"),
    ],
)
def test_a_death_counts_under_its_cause(dead: Worker, cause: str, counted: str | None) -> None:
    assert death_cause(dead, cause) == counted


@pytest.mark.parametrize(
    "one,state",
    [
        (worker(ready=False), "starting"),
        (worker(), "idle"),
        (worker(chunks=[Chunk(1, 0)]), "busy"),
        (worker(chunks=[Chunk(1, 0)], suspended=True), "suspended"),
        (worker(leaving=True, chunks=[Chunk(1, 0)]), "leaving"),
        (worker(leaving=True, ready=False), "leaving"),
    ],
)
def test_a_worker_is_in_one_state(one: Worker, state: str) -> None:
    assert one.state == state
    assert state in WORKER_STATES
