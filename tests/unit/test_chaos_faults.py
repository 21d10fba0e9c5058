"""Faults of the chaos suite: what they take for evidence, and that what they judge is a problem."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos.odd_messages import DAY
from tests.chaos.real import faults, frozen, harms, member_faults, members, worker_faults
from tests.chaos.real.coordinator import partitions_given
from tests.chaos.real.faults import Fault, Lane, LaneRunner, Struck, silent_for
from tests.chaos.real.frozen import held
from tests.chaos.real.member_faults import has_member, stopped_at_once
from tests.chaos.real.members import CODES, FATAL, ChaosMember, Members, until
from tests.chaos.real.orders import Obedience, Orders
from tests.chaos.real.schedule import Planned
from tests.chaos.real.storm import HOT, wanted
from tests.chaos.real.traffic import COALESCING, MOST_DOOMED, Item, Kind, Traffic
from tests.chaos.real.worker_faults import replaced, worker_out_of_memory

PROGRAM = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: {at_the_stop})
print('{{"message": "ready"}}', flush=True)
while True:
    signal.pause()
"""
SEGFAULT = "[signal.signal(signal.SIGSEGV, signal.SIG_DFL), os.kill(os.getpid(), signal.SIGSEGV)]"


# What a fault judges, and what it fails to do


def struck_by(strike: Callable[[Any, random.Random], str], group: Members) -> list[Struck]:
    """What a lane tells of one fault that does this."""
    faults.FAULTS["odd"] = Fault("odd", Lane.PROCESS, strike)
    try:
        runner = LaneRunner(
            SimpleNamespace(members=group),  # type: ignore[arg-type]
            iter([Planned(0.0, "odd", 1)]),
        )
        runner.start()
        assert runner.join(30)
    finally:
        del faults.FAULTS["odd"]
    return runner.struck


def judges(_scene: Any, _chance: random.Random) -> str:
    raise AssertionError("it ended with 1")


def fails(_scene: Any, _chance: random.Random) -> str:
    raise OSError("no connection")


def test_what_a_fault_judges_is_a_problem_of_the_run(tmp_path: Path) -> None:
    group = Members({}, tmp_path)
    [struck] = struck_by(judges, group)
    assert (struck.kind, struck.evidence) == ("odd", "wrong: it ended with 1")
    assert group.unexpected_ends() == ["odd: it ended with 1"]


def test_a_fault_that_cannot_strike_has_no_effect_and_is_no_problem(tmp_path: Path) -> None:
    group = Members({}, tmp_path)
    [struck] = struck_by(fails, group)
    assert (struck.kind, struck.evidence) == ("odd (error: OSError('no connection'))", "")
    assert group.unexpected_ends() == []


# How instances end

Start = Callable[[str], ChaosMember]


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Members]:
    made = Members({}, tmp_path)
    yield made
    for member in made.alive:
        member.kill()


@pytest.fixture
def start(group: Members, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Starts one that does this when it is told to stop."""
    popen = subprocess.Popen

    def started(at_the_stop: str) -> ChaosMember:
        program = PROGRAM.format(at_the_stop=at_the_stop)
        monkeypatch.setattr(
            members.subprocess, "Popen",
            lambda _, **more: popen([sys.executable, "-c", program], **more),
        )  # fmt: skip
        member = group.start()
        assert until(lambda: member.said("ready"), 30)
        return member

    return started


@pytest.mark.parametrize("code", sorted(CODES))
def test_who_was_told_to_stop_may_end_so(group: Members, start: Start, code: int) -> None:
    assert start(f"os._exit({code})").stop() == code
    assert group.unexpected_ends() == []


@pytest.mark.parametrize(
    "at_the_stop, code", [("os._exit(1)", 1), (SEGFAULT, -signal.SIGSEGV)], ids=["1", "segfault"]
)
def test_any_other_end_of_who_was_told_to_stop_is_a_problem(
    group: Members, start: Start, at_the_stop: str, code: int
) -> None:
    assert start(at_the_stop).stop() == code
    [wrong] = group.unexpected_ends()
    assert f"instance 0 ended with {code} when it was told to stop" in wrong


def test_who_ends_by_itself_is_a_problem_and_who_was_killed_is_none(
    group: Members, start: Start
) -> None:
    start("os._exit(0)").kill()
    assert group.unexpected_ends() == []
    alone = start("os._exit(0)")
    alone.process.terminate()
    alone.process.wait(30)
    [wrong] = group.unexpected_ends()
    assert "instance 1 ended with 0 by itself" in wrong


def test_who_does_not_stop_is_judged_and_killed(group: Members, start: Start) -> None:
    deaf = start("None")
    with pytest.raises(AssertionError, match="instance 0 was told to stop and did not"):
        deaf.stop(timeout=0.2)
    assert not deaf.alive


def test_only_who_may_be_refused_by_the_group_may_end_so(group: Members, start: Start) -> None:
    member = start(f"os._exit({FATAL})")
    member.allowed = CODES | {FATAL}
    assert member.stop() == FATAL
    assert group.unexpected_ends() == []


def test_those_of_a_storm_leave_at_once(group: Members, start: Start) -> None:
    """Each ends only once the other one is told to, too."""
    here = group._folder
    pair = [
        start(f"[open('{here}/told-{n}', 'w').close(), [1 for _ in iter(lambda:"
              f" os.path.exists('{here}/told-{1 - n}'), True)], os._exit(0)]")
        for n in range(2)
    ]  # fmt: skip
    assert stopped_at_once(pair) == [0, 0]


# What is seen of a process that is stopped


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait(30)


def test_a_process_that_is_stopped_is_seen_so_and_goes_on(
    sleeper: subprocess.Popen[bytes],
) -> None:
    assert "seen stopped, for 0.1 s" in held(sleeper.pid, 0.1)
    assert until(lambda: not frozen.is_stopped(sleeper.pid), 10)


def test_a_process_that_no_signal_has_stopped_is_no_evidence(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frozen, "STOPPED_WITHIN", 0.2)
    monkeypatch.setattr(frozen.os, "kill", lambda pid, number: None)
    assert held(sleeper.pid, 0.1) == ""


def test_a_maintenance_process_that_hangs_and_is_not_replaced_is_a_problem(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_faults, "SILENCE", 0.1)
    monkeypatch.setattr(worker_faults, "REPLACED", 0.1)
    member: Any = SimpleNamespace(said=lambda _: 0, children=lambda _: [])
    with pytest.raises(AssertionError, match="was not replaced"):
        replaced(member, sleeper.pid)


def test_a_maintenance_process_counts_as_replaced_once_another_is_there_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_faults, "REPLACED", 0.1)
    for said, children, seen in ((1, [7], True), (0, [7], False), (1, [], False)):
        with subprocess.Popen(["sleep", "600"]) as process:
            lines = iter([0, said])
            member: Any = SimpleNamespace(
                said=lambda _, lines=lines: next(lines), children=lambda _, all_=children: all_
            )
            stopped = frozen.is_stopped

            def killed(pid: int, stopped: Callable[[int], bool] = stopped) -> bool:
                """Its main process ends it as soon as it is stopped."""
                if found := stopped(pid):
                    os.kill(pid, signal.SIGKILL)
                return found

            monkeypatch.setattr(frozen, "is_stopped", killed)
            assert bool(replaced(member, process.pid)) == seen
            monkeypatch.undo()
            monkeypatch.setattr(worker_faults, "REPLACED", 0.1)


# What is seen of the others


def test_silence_with_nobody_connected_is_no_evidence() -> None:
    def gate(connections: int) -> Any:
        return SimpleNamespace(
            hang=lambda: None, mend=lambda: None, passed=7, connections=connections
        )

    assert silent_for([gate(0), gate(0)], 0) == ""
    assert silent_for([gate(0), gate(2)], 0) == "2 connections"


def test_memory_is_exhausted_only_where_a_handler_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_faults, "FAILED", 0.1)
    monkeypatch.setattr(worker_faults, "PATIENCE", 5.0)
    monkeypatch.setenv("CHAOS_ORDERS", str(tmp_path))
    scene: Any = SimpleNamespace(orders=Orders(tmp_path))
    hands = Obedience(str(tmp_path))

    def struck(*, ran_out: bool) -> str:
        with ThreadPoolExecutor(1) as other:
            found = other.submit(worker_out_of_memory, scene, random.Random(1))
            assert until(lambda: hands.take("in_handler", "a-1") == "eat", 5)
            if ran_out:
                monkeypatch.setattr(harms, "bytearray", no_memory, raising=False)
                with pytest.raises(MemoryError):
                    harms.do("eat")
            return found.result(10)

    assert struck(ran_out=False) == ""
    assert "a-1 had no memory left" in struck(ran_out=True)


def no_memory(size: int) -> bytearray:
    if size > 2**20:
        raise MemoryError
    return bytearray(size)


# Partitions that are added


def test_a_partition_has_a_member_only_where_the_group_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(member_faults, "partitions_given", lambda bootstrap, group: {0, 1, 2})
    place = SimpleNamespace(stack=SimpleNamespace(kafka="localhost:1"))
    scene: Any = SimpleNamespace(place=place, name="x")
    assert has_member(scene, 2)
    assert not has_member(scene, 3)


def test_what_nobody_answers_is_given_to_nobody() -> None:
    assert partitions_given("127.0.0.1:1", "x") == set()


# Traffic


def items(plain: float, n: int = 30_000) -> list[Item]:
    traffic = Traffic(3, "x", plain=plain)
    return [traffic.next() for _ in range(n)]


def test_times_out_of_range_are_among_requests_and_bad_messages_all_the_time() -> None:
    made = items(0.9)
    for part in (made[:10_000], made[-10_000:]):
        odd = [item for item in part if item.timestamp]
        assert {item.kind for item in odd} == {Kind.REQUEST, Kind.MALFORMED}
        assert min(item.timestamp for item in odd) < DAY < 2**60 < max(i.timestamp for i in odd)
        headers = [dict(item.headers) for item in part if item.kind is Kind.REQUEST]
        assert b"0001-01-01T00:00:00Z" in {found.get("ce_time") for found in headers}


def test_none_of_those_whose_latest_counts_has_a_time_out_of_range() -> None:
    latest = [item for item in items(0.0) if item.type in COALESCING]
    assert latest
    assert not any(item.timestamp or "ce_time" in dict(item.headers) for item in latest)


def test_some_requests_run_out_of_attempts_and_not_more_than_there_is_room_for() -> None:
    assert 0 < Counter(item.type for item in items(0.9))["doomed"] < MOST_DOOMED
    assert Counter(item.type for item in items(0.0))["doomed"] == MOST_DOOMED


def test_a_storm_has_handlers_want_the_same_rows_in_different_orders() -> None:
    orders = {tuple(wanted(random.Random(f"x-{n}"))) for n in range(200)}
    assert {account for order in orders for account in order} == set(HOT)
    assert any((second, first) in orders for first, second in orders)
