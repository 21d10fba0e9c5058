"""What was wanted of figures, and whether it was reached. Pure: results in, words out.

Results are the documents of benchmarks/results/, by the name of their file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.spread import Spread, ratio, spread

Results = Mapping[str, Any]
BEFORE = "ec01882"
"""The commit that the work on speed began with."""


@dataclass(frozen=True, slots=True)
class Goal:
    """One figure."""

    what: str
    wanted: float
    measure: Callable[[Results], Spread]
    """Raises KeyError where it was not measured."""
    why: str
    """The cause, where it is missed."""
    at_most: bool = False


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of a goal; `found` None: not measured."""

    goal: Goal
    found: Spread | None

    @property
    def met(self) -> bool:
        """Whether the median is as wanted."""
        if self.found is None:
            return False
        if self.goal.at_most:
            return self.found.median <= self.goal.wanted
        return self.found.median >= self.goal.wanted

    @property
    def words(self) -> str:
        """Met, or by how much it is missed."""
        if self.found is None:
            return "not measured"
        if self.met:
            return "met"
        return f"missed: {100 * abs(self.found.median / self.goal.wanted - 1):.0f} % away"


def verdicts(results: Results) -> list[Judged]:
    """Of all goals, in their order."""
    return [Judged(goal, _measured(goal, results)) for goal in GOALS]


def _measured(goal: Goal, results: Results) -> Spread | None:
    try:
        return goal.measure(results)
    except (KeyError, ValueError, ZeroDivisionError):
        return None


def rate_ratio(file: str, case: str, ours: str, theirs: str) -> Callable[[Results], Spread]:
    """Of rates, round by round, of a contest."""

    def measure(results: Results) -> Spread:
        sides = results[file]["found"][case]
        return ratio(*([run["rate"] for run in sides[name]] for name in (ours, theirs)))

    return measure


def cpu_ratio(file: str, case: str, ours: str, theirs: str) -> Callable[[Results], Spread]:
    """Of CPU a request over all processes, of the rounds in which that of both could be told."""

    def measure(results: Results) -> Spread:
        sides = results[file]["found"][case]
        runs = zip(*([run["cpu"] for run in sides[n]] for n in (ours, theirs)), strict=True)
        told = [[sum(cpu.values()) for cpu in pair] for pair in runs if all(pair)]
        return spread([mine / other for mine, other in told])

    return measure


def _one_worker(results: Results) -> Spread:
    one, two = (
        rate_ratio(name, "no-op", "Oncepool", "afternoon")(results).median
        for name in ("peers-1", "peers-2")
    )
    return spread([one / two])


def times_ratio(
    file: str, part: str, ours: str, theirs: str, *, plus: str | None = None
) -> Callable[[Results], Spread]:
    """Of milliseconds, round by round; `plus`: what is added to theirs."""

    def measure(results: Results) -> Spread:
        found = results[file]["found"]
        others = [times[part] for times in found[theirs]]
        if plus is not None:
            more = [times["p50"] for times in found[plus]]
            others = [a + b for a, b in zip(others, more, strict=True)]
        return ratio([times[part] for times in found[ours]], others)

    return measure


def share_of_empty(journal: str) -> Callable[[Results], Spread]:
    """Of rates with a journal and with an empty one."""
    return lambda results: _journals(results, journal, "empty")


def _pruned(results: Results) -> Spread:
    return _journals(results, "10,000,000 rows, pruned", "10,000,000 rows")


def _journals(results: Results, ours: str, theirs: str) -> Spread:
    found = results["journal_size"]["found"]
    return ratio(*([run["rate"] for run in found[name]] for name in (ours, theirs)))


def rebalanced(file: str, figure: str) -> Callable[[Results], Spread]:
    """Of stretches with rebalances and without, of KIP-848."""
    return lambda results: Spread(**results[file]["protocols"]["KIP-848"]["ratio"][figure])


def _backlog_rate(results: Results) -> Spread:
    rates = results["backlog"]["found"]["Oncepool"]["rates"]
    return spread([rates[-1] / rates[0]])


def _backlog_memory(results: Results) -> Spread:
    memory = results["backlog"]["found"]["Oncepool"]["memory"]
    return spread([max(row[-1] / row[0] for row in memory.values() if row[0] and row[-1])])


def _waiting(handler: str, side: str) -> Callable[[Results], Spread]:
    def measure(results: Results) -> Spread:
        rates = results["waiting"]["requests_per_second"][handler]
        return ratio(rates[side], rates["empty queue"])

    return measure


_WAY = (
    "each request goes from the main process to a worker and its outcome back, and its offset is "
    "committed and answered before it runs; the afternoon's consumer does neither"
)
_SAME = (
    "what the broker, PostgreSQL and librdkafka spend on a request is nearly the same in both; "
    "only workers, statuses and the main process spend less"
)
_NOTHING = (
    "each request is parsed, goes to a worker and back, and its offset is committed and answered "
    "before it runs; the loop does none of these"
)
_TABLE = "an INSERT waits for its answer, and groups of requests have a savepoint of their own"
_STATUS = "the packing of a status, and Redis, are most of what is left"
_CORES = "broker, database, Redis and the main process need the same cores"
_SHARED = "with two cores the slow type's worker, the services and the quick type's share them"
_ROUND = "the commit before the run, and one more process on the way there and back"
_TWICE = "a due row is claimed and ended by an update each, a fresh one is a row of a COPY"
_SESSION = "partitions stand still from when one member lets them go until the next one has them"
_LEAVES = "more of the index is read and written than stays in memory"

GOALS = (
    Goal("no-op / afternoon", 1.0, rate_ratio("peers-2", "no-op", "Oncepool", "afternoon"), _WAY),
    Goal(f"no-op / {BEFORE}", 1.9, rate_ratio("peers-2", "no-op", "Oncepool", BEFORE), _SAME),
    Goal(
        f"no-op, CPU a request of all processes / {BEFORE}", 0.58,
        cpu_ratio("peers-2", "no-op", "Oncepool", BEFORE), _SAME, at_most=True,
    ),
    Goal(
        "one INSERT / afternoon", 1.1,
        rate_ratio("peers-2", "one INSERT", "Oncepool", "afternoon"), _TABLE,
    ),
    Goal(
        "one INSERT in pipelines / afternoon in pipelines", 1.0,
        rate_ratio("peers-2", "one INSERT", "Oncepool, pipeline", "afternoon, pipeline"), _WAY,
    ),
    Goal(f"batch, COPY / {BEFORE}", 1.9,
         rate_ratio("peers-2", "batch, COPY", "Oncepool", BEFORE), _SAME),
    Goal("hand-off with statuses / arroyo with a pool", 4.0,
         rate_ratio("handoff-2", "no-op", "Oncepool", "arroyo, pool"), _STATUS),
    Goal("hand-off without / arroyo with a pool", 6.0,
         rate_ratio("handoff-2", "no-op", "Oncepool, no status", "arroyo, pool"), _WAY),
    Goal("hand-off without / bare loop", 0.35,
         rate_ratio("handoff-2", "no-op", "Oncepool, no status", "bare loop"), _NOTHING),
    Goal("no-op / afternoon, one worker's ratio over two workers'", 1.0, _one_worker, _CORES),
    *(
        Goal(f"handlers that compute, {case} / bare processes", 0.98,
             rate_ratio("cpu_bound-2", case, "Oncepool", "bare processes"), _CORES)
        for case in ("1 ms", "10 ms", "100 ms", "mixed")
    ),
    Goal("p99 of a 1 ms type beside one of 1 s, a worker kept / alone", 3.0,
         times_ratio("beside", "p99", "one worker kept", "alone"), _SHARED, at_most=True),
    Goal("idle p50 / afternoon's and a commit", 1.0,
         times_ratio("latency", "p50", "Oncepool, client", "afternoon", plus="a commit"),
         _ROUND, at_most=True),
    Goal("idle p99 / Kafka alone", 1.5,
         times_ratio("latency", "p99", "Oncepool, client", "Kafka alone"), _ROUND, at_most=True),
    Goal("p99 with half load / idle", 5.0,
         times_ratio("latency", "p99", "Oncepool, client, half load", "Oncepool, client"),
         _CORES, at_most=True),
    Goal("rebalances with kills, KIP-848, finished / undisturbed", 0.99,
         rebalanced("rebalance", "finished"), _SESSION),
    Goal("planned hand-overs, KIP-848, answered within 1 s / undisturbed", 0.95,
         rebalanced("rebalance-planned", "in_time"), _SESSION),
    *(
        Goal(f"journal of {size} M rows, ordered ids / empty", 0.9,
             share_of_empty(f"{size},000,000 rows"), _LEAVES)
        for size in (10, 50)
    ),
    Goal("journal of 10 M rows, pruned meanwhile / left alone", 0.9, _pruned, _LEAVES),
    Goal("backlog, last third's rate / first third's", 0.95, _backlog_rate, _LEAVES),
    Goal("backlog, memory in the last third / first", 1.1, _backlog_memory,
         "caches of the interpreter and of librdkafka's fetches fill", at_most=True),
    Goal("due rows, no-op / fresh", 0.5, _waiting("bench.noop", "due rows"), _TWICE),
    Goal("fresh beside a full queue, no-op / beside an empty one", 0.95,
         _waiting("bench.noop", "beside a full queue"), _LEAVES),
)  # fmt: skip
