"""Schedules of commits, rebalances, broken connections, zombies and deaths, by the thousand.

The invariants (each offset run by one process, below an offset committed with its token, no commit
backwards, nothing lost without a drop) are checked inside `World`.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from consumer.intake import offset_metadata
from consumer.intake.offset_metadata import MOST_TIMES
from tests.model.commit_answers import ENDING, TRANSIENT
from tests.model.group import BATCH, PROTOCOLS, World
from tests.model.happenings import step

# Many steps of pure code, three times slower where its branches are measured.
pytestmark = pytest.mark.no_cover

SCHEDULES = 500
STEPS = 150


def run(seed: int, protocol: str, *, unreported: bool = False, processes: int = 3) -> World:
    world = World(seed, protocol=protocol, processes=processes)
    try:
        for _ in range(STEPS):
            if unreported:
                world.breaks_reported = world.random.random() < 0.5
            step(world)
        world.breaks_reported = not unreported
        world.settle()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error
    return world


def tally(worlds: list[World]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for world in worlds:
        counts["delivered"] += len(world.dispatched)
        counts["rewound"] += len(world.rewound)
        for process in world.processes:
            counts += process.commit.counts
    return counts


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_schedule_runs_twice_or_loses_without_a_drop_or_commits_backwards(protocol: str) -> None:
    counts = tally([run(seed, protocol) for seed in range(SCHEDULES)])
    assert counts["rewound"] == 0
    # The schedules would show nothing if they did not get there.
    for what in (
        *("rejoins", "sent again", "drop:revoked", "drop:not ours any more"),
        "drop:stopping",
    ):
        assert counts[what] > SCHEDULES / 100, what
    member = "FENCED_MEMBER_EPOCH" if protocol == "consumer" else "UNKNOWN_MEMBER_ID"
    stale = "STALE_MEMBER_EPOCH" if protocol == "consumer" else "ILLEGAL_GENERATION"
    for what in (f"error:{stale}", f"error:{member}", "error:_TIMED_OUT"):
        assert counts[what] > SCHEDULES / 200, what
    assert counts["drop:undecided"] > 0
    assert counts["delivered"] > 10 * SCHEDULES


@pytest.mark.parametrize("times", [MOST_TIMES, 0], ids=["rarely", "at once"])
def test_whatever_was_delivered_is_finished_by_somebody(
    monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """But for what is given up once a gap was read so many times: only who dies has lost that."""
    monkeypatch.setattr(offset_metadata, "MOST_TIMES", times)
    happened: Counter[str] = Counter()
    for seed in range(SCHEDULES):
        protocol = PROTOCOLS[seed % len(PROTOCOLS)]
        world = World(seed, protocol=protocol, read_again=True)
        try:
            world.run(STEPS, step)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        happened += world.happened
    for what in (
        *("read again", "read again, not begun", "last words", "a member is killed"),
        "nobody can say where to begin",
    ):
        assert happened[what] > SCHEDULES / 10, what


def test_what_is_left_of_a_partition_that_goes_again_before_it_was_begun_is_finished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of what no mark tells any more, too: the schedule with the seed 150 has some."""
    monkeypatch.setattr(offset_metadata, "MOST_TIMES", 0)

    def happen(world: World) -> None:
        world.starts_fail = True
        if world.target is None and world.random.random() < 0.1:
            world.rebalance()
        step(world, but=("_finish", "_starts"))

    happened: Counter[str] = Counter()
    for seed in range(100, 200):
        world = World(seed, protocol=PROTOCOLS[0], read_again=True)
        try:
            world.run(STEPS, happen)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        happened += world.happened
    assert happened["nobody can say where to begin"] > 100


def test_offsets_put_back_by_bytes_that_nobody_reported_are_put_right_after_a_rejoin() -> None:
    # One process, so that partitions come back to it. One schedule in some thousands gets there:
    # of these those with the seeds 2669 and 2872.
    seeds = range(2_500, 2_500 + SCHEDULES)
    worlds = [run(seed, PROTOCOLS[1], unreported=True, processes=1) for seed in seeds]
    counts = tally(worlds)
    assert counts["rewound"] > 0
    assert counts["put right"] > 0


class CommitMachine(RuleBasedStateMachine):
    """The same world, with hypothesis choosing what happens, so that a failure shrinks."""

    @initialize(protocol=st.sampled_from(PROTOCOLS))
    def begin(self, protocol: str) -> None:
        self.world = World(0, partitions=2, processes=2, protocol=protocol)

    @rule(place=st.integers(0, 1), count=st.integers(1, 4))
    def produce(self, place: int, count: int) -> None:
        self.world.ends[self.world.places[place]] += count

    @rule(which=st.integers(0, 3), most=st.integers(0, BATCH), room=st.sampled_from([1, 3, 1000]))
    def turn(self, which: int, most: int, room: int) -> None:
        process = self.world.processes[which % len(self.world.processes)]
        if process.runs:
            process.poll(most)
            process.next(room)

    @precondition(lambda self: self.world.requests)
    @rule(which=st.integers(0, 5), answer=st.booleans())
    def land(self, which: int, answer: bool) -> None:
        self.world.land(self.world.requests[which % len(self.world.requests)], answer=answer)

    @precondition(lambda self: self.world.requests)
    @rule(which=st.integers(0, 5))
    def break_connection(self, which: int) -> None:
        self.world.break_connection(self.world.requests[which % len(self.world.requests)])

    @precondition(lambda self: self.world.requests)
    @rule(
        which=st.integers(0, 5),
        code=st.sampled_from(TRANSIENT + ENDING),
        one=st.booleans(),
        landed=st.booleans(),
    )
    def fail(self, which: int, code: str, one: bool, landed: bool) -> None:
        request = self.world.requests[which % len(self.world.requests)]
        self.world.fail(request, code, one=one, landed=landed)

    @rule(which=st.integers(0, 3))
    def hear(self, which: int) -> None:
        self.world.hear(self.world.processes[which % len(self.world.processes)])

    @rule(evict=st.booleans())
    def complete(self, evict: bool) -> None:
        self.world.complete(evict=evict)

    @precondition(lambda self: self.world.target is None)
    @rule()
    def rebalance(self) -> None:
        self.world.joined += 1
        self.world.rebalance()

    @rule(which=st.integers(0, 3))
    def freeze(self, which: int) -> None:
        process = self.world.processes[which % len(self.world.processes)]
        process.frozen = not process.frozen

    @rule(which=st.integers(0, 3), late=st.booleans())
    def stop(self, which: int, late: bool) -> None:
        process = self.world.processes[which % len(self.world.processes)]
        if process.runs:
            process.stop()
            if late:
                process.abandon()

    @precondition(lambda self: len(self.world.processes) < 4)
    @rule(kill=st.booleans())
    def replace(self, kill: bool) -> None:
        if kill:
            self.world.kill(self.world.processes[-1])
        self.world.start()

    @rule(fails=st.booleans())
    def reads(self, fails: bool) -> None:
        self.world.read_fails = fails

    @invariant()
    def one_commit_in_flight(self) -> None:
        if hasattr(self, "world"):
            for process in self.world.processes:
                waiting = [
                    r for r in self.world.requests if r.process is process and not r.answered
                ]
                assert len(waiting) <= 1

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.settle()


TestCommitMachine = CommitMachine.TestCase
TestCommitMachine.settings = settings(
    stateful_step_count=50, suppress_health_check=[HealthCheck.too_slow]
)
