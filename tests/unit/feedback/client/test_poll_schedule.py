"""Which statuses are read next."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from feedback.client.poll_schedule import LONGEST, SHORTEST, SLICE, PollSchedule


class AgendaMachine(RuleBasedStateMachine):
    """Whatever happens: only ids that are waited for are read, soon, and not too often."""

    def __init__(self) -> None:
        super().__init__()
        self.agenda = PollSchedule()
        self.now = 0.0
        self.waiting: dict[str, list[float]] = {}  # id: when each wait began
        self.unread: dict[str, float] = {}  # id: since when nobody has looked

    @rule(number=st.integers(0, 5), many=st.sampled_from([1, 1, 1, 3 * SLICE]))
    def start(self, number: int, many: int) -> None:
        for name in [f"{number}-{index}" for index in range(many)]:
            self.waiting.setdefault(name, []).append(self.now)
            self.unread.setdefault(name, self.now)
            self.agenda.started(name, self.now)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.waiting)[:20]))
        self.waiting[name].pop()
        if not self.waiting[name]:
            self.agenda.ended(name)
            del self.waiting[name]
            self.unread.pop(name, None)

    @rule(number=st.integers(0, 7))
    def hint(self, number: int) -> None:
        self.agenda.hinted([f"{number}-0", "nobody's"])

    @rule()
    def reconnect(self) -> None:
        self.agenda.missed_hints()

    @rule(fails=st.sampled_from([False, False, True]), seconds=st.floats(0.0001, 0.01))
    def read(self, fails: bool, seconds: float) -> None:
        ids = self.agenda.take(self.now)
        assert len(ids) <= SLICE
        assert set(ids) <= set(self.waiting)
        assert len(set(ids)) == len(ids)
        if not ids:
            return
        self.now += seconds
        if fails:
            self.agenda.failed()
            return
        self.agenda.done(self.now, seconds)
        for name in ids:
            self.unread[name] = self.now

    @rule(seconds=st.floats(0.001, 3))
    def idle(self, seconds: float) -> None:
        """Reads as the sweeper does, for a while."""
        end = self.now + seconds
        while self.now < end:
            ids = self.agenda.take(self.now)
            if ids:
                self.now += 0.001
                self.agenda.done(self.now, 0.001)
                for name in ids:
                    self.unread[name] = self.now
                continue
            pause = self.agenda.pause(self.now)
            if pause is None:
                self.now = end
                return
            assert 0 < pause <= LONGEST
            self.now += pause
        # Twice the longest rest, and the time of a sweep over everything.
        slack = 2 * LONGEST + 0.001 * (len(self.waiting) / SLICE + 2)
        assert all(self.now - since <= seconds + slack for since in self.unread.values())

    @invariant()
    def rests_only_where_nothing_waits(self) -> None:
        pause = self.agenda.pause(self.now)
        assert (pause is None) == (not self.waiting)


AgendaMachine.TestCase.settings = settings(stateful_step_count=30)

# Many steps of pure code: several times slower where its branches are measured.
TestAgenda = pytest.mark.no_cover(AgendaMachine.TestCase)


def test_new_waits_and_hints_are_read_at_once() -> None:
    agenda = PollSchedule()
    agenda.started("a", 0.0)
    assert agenda.take(0.0) == ["a"]
    agenda.done(0.0, 0.0001)
    agenda.take(SHORTEST)
    agenda.done(10.0, 0.0001)
    assert agenda.take(10.0) == []
    agenda.hinted(["b", "a"])
    assert agenda.pause(10.0) == 0
    assert agenda.take(10.0) == ["a"]


def test_sweeps_take_a_tenth_of_the_time_at_most() -> None:
    agenda = PollSchedule()
    for number in range(10_000):
        agenda.started(str(number), 0.0)
    now, reading, begun = 0.0, 0.0, 0
    while now < 10.0:
        ids = agenda.take(now)
        if ids:
            seconds = 0.0006 if len(ids) > 1 else 0.0
            now += seconds
            reading += seconds
            agenda.done(now, seconds)
        elif begun < now * 100:  # waits that begin all the time do not make it read more
            begun += 1
            agenda.started(f"new {begun}", now)
        else:
            pause = agenda.pause(now)
            assert pause
            now += min(pause, 0.01)
    assert 0.08 < reading / now < 0.105


def test_a_long_wait_is_looked_at_less_often() -> None:
    agenda = PollSchedule()
    agenda.started("a", 0.0)
    now, reads = 0.0, 0
    while now < 600.0:
        if agenda.take(now):
            reads += 1
            agenda.done(now, 0.0002)
        else:
            pause = agenda.pause(now)
            assert pause
            now += pause
    assert reads < 1_200


def test_hints_without_end_do_not_hold_up_the_sweep() -> None:
    agenda = PollSchedule()
    for name in ("hinted", "silent"):
        agenda.started(name, 0.0)
    agenda.take(0.0)
    now = 1.0
    for _ in range(10):
        agenda.hinted(["hinted"])
        ids = agenda.take(now)
        agenda.done(now, 0.0001)
        now += 0.001
        if "silent" in ids:
            return
    pytest.fail("the sweep never got its turn")
