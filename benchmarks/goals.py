"""What was wanted of figures, and whether it was reached. Pure: results in, words out.

Results are the documents of benchmarks/results/, by the name of their file.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.causes import (
    OWN,
    Cause,
    Results,
    apart,
    beside_before,
    beyond_work,
    half_load,
    idle_over,
    journal_of,
    of_status,
    one_and_two,
    said,
    side_of,
    waiting_of,
)
from benchmarks.goal_measures import (
    Measure,
    backlog_memory,
    backlog_rate,
    cpu_ratio,
    journals,
    one_worker,
    rate_ratio,
    rebalanced,
    times_ratio,
    waiting,
)
from benchmarks.spread import Spread

BEFORE = "ec01882"
"""An earlier commit of Oncepool, for comparison."""
UNTOLD = "what it costs by process was not measured"


@dataclass(frozen=True, slots=True)
class Goal:
    """One figure."""

    what: str
    wanted: float | None
    """None: nothing was, the figure is to be shown."""
    measure: Measure
    """Raises KeyError where it was not measured."""
    why: Cause
    """The cause, where it is missed."""
    at_most: bool = False


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of a goal; `found` None: not measured."""

    goal: Goal
    found: Spread | None
    why: str = ""
    """The cause, where it is missed, or lies below 1 and nothing was wanted."""

    @property
    def met(self) -> bool:
        """Whether the median is as wanted."""
        if self.found is None or self.goal.wanted is None:
            return False
        if self.goal.at_most:
            return self.found.median <= self.goal.wanted
        return self.found.median >= self.goal.wanted

    @property
    def missed(self) -> bool:
        """Whether it was measured, and is not as wanted."""
        return self.found is not None and self.goal.wanted is not None and not self.met

    @property
    def wanted(self) -> str:
        """What was wanted, in a table."""
        if self.goal.wanted is None:
            return ""
        return f"{'<=' if self.goal.at_most else '>='} {self.goal.wanted:g}"

    @property
    def words(self) -> str:
        """Met, or by how much it is missed."""
        if self.found is None:
            return "not measured"
        if self.goal.wanted is None:
            return "shown; nothing was wanted"
        if self.met:
            return "met"
        return f"missed: {100 * abs(self.found.median / self.goal.wanted - 1):.0f} % away"


def verdicts(results: Results) -> list[Judged]:
    """Of all goals, in their order."""
    return [_judged(goal, results) for goal in GOALS]


def _judged(goal: Goal, results: Results) -> Judged:
    try:
        found = goal.measure(results)
    except (KeyError, ValueError, ZeroDivisionError):
        return Judged(goal, None)
    judged = Judged(goal, found)
    if judged.met or (goal.wanted is None and found.median >= 1):
        return judged
    try:
        return Judged(goal, found, goal.why(results))
    except (KeyError, ValueError):
        return Judged(goal, found, UNTOLD)


_OURS = "Oncepool"
_HANDED = (
    "each request goes from the main process to a worker and its outcome back, and its offset is "
    "committed and answered before it runs"
)
_WAY = {OWN: _HANDED, "PostgreSQL": "a look-up, and a row of more columns",
        "broker": "commits come more often"}  # fmt: skip
_TABLE = {
    OWN: f"both wait for the answer to each INSERT; {_HANDED}",
    "PostgreSQL": "groups of requests have savepoints, ids are looked up, rows have more columns",
}
_SHARED = "with two cores the slow type's worker, the services and the quick type's share them"
_TWICE = "a due row is claimed and ended by an update each, a fresh one is a row of a COPY"
_SESSION = "partitions stand still from when one member lets them go until the next one has them"
_FILLS = "caches of the interpreter and of librdkafka's fetches fill"
_CASES = ("no-op", "one INSERT", "batch, COPY")
_NOTHING = {OWN: "the loop parses nothing, commits behind, and hands nothing on"}


def _against_others() -> tuple[Goal, ...]:
    """One side in the same run."""
    ours = {case: side_of("peers-2", case, _OURS) for case in _CASES}
    before = {case: side_of("peers-2", case, BEFORE) for case in _CASES}
    piped, others = (
        side_of("peers-2", "one INSERT", f"{side}, pipeline") for side in (_OURS, "afternoon")
    )
    told, untold, pool, loop = (
        side_of("handoff-2", "no-op", side)
        for side in (_OURS, f"{_OURS}, no status", "arroyo, pool", "bare loop")
    )
    return (
        Goal("no-op / afternoon", 1.0, rate_ratio("peers-2", "no-op", _OURS, "afternoon"),
             apart(ours["no-op"], side_of("peers-2", "no-op", "afternoon"), notes=_WAY)),
        Goal(f"no-op / {BEFORE}", 1.9, rate_ratio("peers-2", "no-op", _OURS, BEFORE),
             beside_before(ours["no-op"], before["no-op"], 1 / 1.9)),
        Goal(f"no-op, CPU a request of all processes / {BEFORE}", 0.58,
             cpu_ratio("peers-2", "no-op", _OURS, BEFORE),
             beside_before(ours["no-op"], before["no-op"], 0.58), at_most=True),
        Goal("one INSERT / afternoon", 1.1,
             rate_ratio("peers-2", "one INSERT", _OURS, "afternoon"),
             apart(ours["one INSERT"], side_of("peers-2", "one INSERT", "afternoon"),
                   notes=_TABLE)),
        Goal("one INSERT in pipelines / afternoon in pipelines", 1.0,
             rate_ratio("peers-2", "one INSERT", f"{_OURS}, pipeline", "afternoon, pipeline"),
             apart(piped, others, notes=_WAY)),
        Goal(f"batch, COPY / {BEFORE}", 1.9,
             rate_ratio("peers-2", "batch, COPY", _OURS, BEFORE),
             beside_before(ours["batch, COPY"], before["batch, COPY"], 1 / 1.9)),
        Goal("hand-off with statuses / arroyo with a pool", 4.0,
             rate_ratio("handoff-2", "no-op", _OURS, "arroyo, pool"), of_status(told, untold)),
        Goal("hand-off without / arroyo with a pool", 6.0,
             rate_ratio("handoff-2", "no-op", f"{_OURS}, no status", "arroyo, pool"),
             apart(untold, pool)),
        Goal("hand-off without / bare loop", 0.35,
             rate_ratio("handoff-2", "no-op", f"{_OURS}, no status", "bare loop"),
             apart(untold, loop, notes=_NOTHING)),
    )  # fmt: skip


def _of_one_worker() -> tuple[Goal, ...]:
    return tuple(
        Goal(f"{case} / {theirs}, one worker's ratio over two workers'", 1.0,
             one_worker(case, theirs), one_and_two(case, theirs))
        for theirs in ("afternoon", BEFORE) for case in _CASES
    )  # fmt: skip


def _of_computing() -> tuple[Goal, ...]:
    return tuple(
        Goal(f"handlers that compute, {case} / bare processes", 0.98,
             rate_ratio("cpu_bound-2", case, _OURS, "bare processes"),
             beyond_work(*(side_of("cpu_bound-2", case, s) for s in (_OURS, "bare processes"))))
        for case in ("1 ms", "10 ms", "100 ms", "mixed")
    )  # fmt: skip


def _of_times() -> tuple[Goal, ...]:
    client = f"{_OURS}, client"
    return (
        Goal("p99 of a 1 ms type beside one of 1 s, a worker kept / alone", 3.0,
             times_ratio("beside", "p99", "one worker kept", "alone"), said(_SHARED),
             at_most=True),
        Goal("idle p50 / afternoon's and a commit", 1.0,
             times_ratio("latency", "p50", client, "afternoon", plus="a commit"),
             idle_over("p50", "afternoon", plus="a commit"), at_most=True),
        Goal("idle p99 / Kafka alone", 1.5,
             times_ratio("latency", "p99", client, "Kafka alone"),
             idle_over("p99", "Kafka alone"), at_most=True),
        Goal("p99 with half load / idle", 5.0,
             times_ratio("latency", "p99", f"{client}, half load", client), half_load,
             at_most=True),
        Goal("rebalances with kills, KIP-848, finished / undisturbed", 0.99,
             rebalanced("rebalance", "finished"), said(_SESSION)),
        Goal("planned hand-overs, KIP-848, answered within 1 s / undisturbed", 0.95,
             rebalanced("rebalance-planned", "in_time"), said(_SESSION)),
    )  # fmt: skip


def _of_journals() -> tuple[Goal, ...]:
    empty = journal_of("empty")
    return (
        *(
            Goal(f"journal of {size} M rows, {ids} ids / empty", wanted,
                 journals(f"{size},000,000 rows{suffix}"),
                 apart(journal_of(f"{size},000,000 rows{suffix}"), empty))
            for ids, suffix, wanted in (("ordered", "", 0.9), ("random", ", random ids", None))
            for size in (10, 50)
        ),
        Goal("journal of 10 M rows, pruned meanwhile / left alone", 0.9,
             journals("10,000,000 rows, pruned", "10,000,000 rows"),
             apart(journal_of("10,000,000 rows, pruned"), journal_of("10,000,000 rows"))),
        Goal("backlog, last third's rate / first third's", 0.95, backlog_rate,
             said("which process it is says the CPU by thirds, in the section")),
        Goal("backlog, memory in the last third / first", 1.1, backlog_memory, said(_FILLS),
             at_most=True),
        Goal("due rows, no-op / fresh", 0.5, waiting("bench.noop", "due rows"), said(_TWICE)),
        Goal("fresh beside a full queue, no-op / beside an empty one", 0.95,
             waiting("bench.noop", "beside a full queue"),
             apart(*(waiting_of("bench.noop", s) for s in ("beside a full queue", "empty queue")))),
    )  # fmt: skip


GOALS = (
    *_against_others(), *_of_one_worker(), *_of_computing(), *_of_times(), *_of_journals(),
)  # fmt: skip
