"""The checks of simulated journals, statuses and producers fail where what they check is broken."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from feedback.client import call
from feedback.contract.states import State
from feedback.contract.times import moment
from feedback.journal.coalescing import CoalescingDecision
from feedback.status.status import StatusFields, StatusWrite
from processing.pool.pool import Pool
from tests.model import handover_world, service_world, sim_journal, sim_redis
from tests.model.pool_rules import Violation
from tests.model.service_world import World
from tests.model.sim_journal import DONE, FAILED, HELD, MERGES, Row

pytestmark = pytest.mark.no_cover

SEEDS = 30


def broken(happens: str, make: Callable[[int], World] = World) -> None:
    """One of the first schedules is broken so."""
    with pytest.raises(Violation, match=happens):
        _run(make)


def _run(make: Callable[[int], World]) -> None:
    for seed in range(SEEDS):
        make(seed).run_through()


def with_rows(*kinds: str, state: State = State.DONE) -> World:
    """A world in whose journal some requests have ended, the oldest one first."""
    world = World(0)
    for number, kind in enumerate(kinds):
        name = f"r{number}"
        headers: list[tuple[str, bytes | None]] = [("ce_id", name.encode())]
        if kind == MERGES:
            headers.append(("reference", b"x"))
        record = ("t", 0, number, 1000 * number, None, b"{}", headers, kind, None)
        world.journal.end(0, record, DONE)
        world.journal.rows[name].state = state
    return world


# What the product decides, decided otherwise


@pytest.mark.parametrize("world", [World, handover_world.World])
def test_what_a_pool_keeps_for_what_has_its_end(
    monkeypatch: pytest.MonkeyPatch, world: Callable[[int], World]
) -> None:
    submit = Pool.submit

    def too_much(pool: Pool, *given: Any) -> Any:
        pool.in_hand_bytes += 1
        return submit(pool, *given)

    monkeypatch.setattr(Pool, "submit", too_much)
    with pytest.raises(Violation, match="bytes left"):
        _run(world)


def test_older_and_newer_requests_that_both_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    def both(arrivals: list[sim_journal.Arrival], *_: object) -> CoalescingDecision:
        due = moment(0.0)
        return CoalescingDecision(due={one.id: (due, due) for one in arrivals})

    monkeypatch.setattr(sim_journal, "judge", both)
    broken("wait for")


def test_a_newest_request_that_never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = sim_journal.judge

    def oldest_wins(
        arrivals: list[sim_journal.Arrival], waiters: list[sim_journal.Waiter], *others: object
    ) -> CoalescingDecision:
        if waiters:
            return CoalescingDecision(superseded={one.id: waiters[0].id for one in arrivals})
        return judge(arrivals, waiters, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(sim_journal, "judge", oldest_wins)
    broken("which is older|never ran")


def test_an_older_request_that_forgets_what_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = sim_journal.judge
    monkeypatch.setattr(
        sim_journal, "judge", lambda new, waiting, _, now: judge(new, waiting, {}, now)
    )
    monkeypatch.setattr(
        sim_journal.Journal, "_settle_references", lambda _self, _number, rows, _now: rows
    )
    broken("a newer one")


def test_attempts_that_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = sim_journal.decide
    monkeypatch.setattr(
        sim_journal, "decide", lambda outcome, policy, _, *more: decide(outcome, policy, 0, *more)
    )
    broken("was tried")


def test_statuses_without_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sim_redis, "replacement", lambda _, write: write.value)
    broken("the status of")


def test_a_client_that_never_sends_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_world, "PATIENCE", 60)
    monkeypatch.setattr(call.ResendTimer, "sent", lambda timer, _: setattr(timer, "due", 1e9))
    monkeypatch.setattr(call.ResendTimer, "refused", lambda *_: None)
    broken("no end")


def test_duplicates_that_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the status was lost nothing else tells the producer."""
    monkeypatch.setattr(service_world, "PATIENCE", 100)
    ended = service_world.Instance.has_ended

    def silently(self: service_world.Instance, *about: object) -> bool:
        tell = self.service.journal.tell
        self.service.journal.tell = lambda *_: None  # type: ignore[method-assign]
        try:
            return ended(self, *about)  # type: ignore[arg-type]
        finally:
            self.service.journal.tell = tell  # type: ignore[method-assign]

    monkeypatch.setattr(service_world.Instance, "has_ended", silently)
    broken("no end")


def test_a_status_before_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    run = sim_journal.Journal.run

    def told_first(self: sim_journal.Journal, number: int, record: sim_journal.Record) -> bool:
        fields = StatusFields(
            sim_journal.id_of(record), "a", State.DONE, 1, "ok", 1, at=moment(self._clock())
        )
        self._tell(number, StatusWrite.of(fields))
        return run(self, number, record)

    monkeypatch.setattr(sim_journal.Journal, "run", told_first)
    broken("never was", handover_world.World)


def test_an_older_status_in_the_place_of_a_newer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    world, told = World(0), list[StatusWrite]()
    world.redis.calm()
    monkeypatch.setattr(world.journal, "_tell", lambda _, write: told.append(write))
    for offset in range(2):
        record = ("t", 0, offset, 0, None, b"{}", [("ce_id", b"r")], "quick", None)
        world.journal.end(0, record, FAILED)
    for write in (*told, told[0]):  # the product's own rule keeps the newer one
        world.redis.write(write)
    monkeypatch.setattr(sim_redis, "replacement", lambda _, write: write.value)
    with pytest.raises(Violation, match="run 1, again"):
        world.redis.write(told[0])


# What histories must not hold


def test_a_history_in_which_all_is_well() -> None:
    with_rows("quick", MERGES, MERGES).check_statuses()


def test_an_effect_without_a_row_that_says_so() -> None:
    with pytest.raises(Violation, match="r0 is failed, effects"):
        with_rows("quick", state=State.FAILED).journal.check()


def test_two_effects() -> None:
    world = with_rows("quick")
    with pytest.raises(Violation, match="two effects"):
        world.journal.end(0, world.journal.rows["r0"].record, DONE)


def test_an_older_one_that_is_done_after_a_newer_one() -> None:
    world = with_rows(MERGES)
    old = world.journal.rows["r0"].record
    newer = ("t", 0, 8, 9000, None, b"{}", [("ce_id", b"new"), ("reference", b"x")], MERGES, None)
    older = (*old[:3], 500, *old[4:6], [("ce_id", b"old"), ("reference", b"x")], *old[7:])
    world.journal.end(0, newer, DONE)
    with pytest.raises(Violation, match="old of x is done after new, a newer one"):
        world.journal.end(0, older, DONE)  # type: ignore[arg-type]


def test_a_winner_that_is_older() -> None:
    world = with_rows(MERGES, MERGES)
    first, second = world.journal.rows["r0"], world.journal.rows["r1"]
    second.state, second.superseded_by = State.SUPERSEDED, first.id
    world.journal.effects["r1"] = 0
    with pytest.raises(Violation, match="which is older"):
        world.journal.check()


def test_a_reference_of_which_none_ran() -> None:
    world = with_rows(MERGES)
    row = world.journal.rows["r0"]
    gone = Row(row.record, row.created_at + timedelta(1), "x", State.DONE)
    world.journal.rows["gone"] = gone
    row.state, row.superseded_by = State.SUPERSEDED, "gone"
    world.journal.effects.update({"r0": -1, "gone": 1})
    world.journal.check()
    gone.state = State.SUPERSEDED
    world.journal.effects["gone"] = 0
    gone.superseded_by = "r0"
    with pytest.raises(Violation, match=r"which is older|never ran"):
        world.journal.check()


def test_a_last_status_that_did_not_come() -> None:
    world = with_rows("quick")
    world.redis.values.clear()
    world.redis.missed.clear()
    with pytest.raises(Violation, match="the status of r0 is None"):
        world.redis.check()


def test_an_answer_that_the_journal_never_gave() -> None:
    world = with_rows("quick")
    world.sent["r0"] = world.journal.rows["r0"].record
    world.producers.submit("r0", "quick", 30.0)
    fields = StatusFields("r0", "quick", State.DEAD, 7, "timeout", 1, at=moment(world.now))
    world.redis.calm()
    world.redis.values["r0"] = fields.encode()
    with pytest.raises(Violation, match="r0 is answered dead"):
        world.producers.look()


def test_retries_and_holds_of_the_model_are_the_products() -> None:
    world = World(0)
    again = ("t", 0, 0, 0, None, b"{}", [("ce_id", b"r")], "again", None)
    world.journal.end(0, again, FAILED)
    assert world.journal.rows["r"].state is State.WAITING
    held = ("t", 0, 1, 0, None, b"{}", [("ce_id", b"h"), ("reference", b"x")], MERGES, None)
    world.journal.end(0, held, HELD)
    row = world.journal.rows["h"]
    assert (row.state, row.due - world.now) == (State.WAITING, pytest.approx(sim_journal.WINDOW))
