from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedback.contract.record import Record
from feedback.status.status import Status
from feedback.status.store import MemoryStatusStore, StatusWrite
from processing.maintenance import counters as counters_module
from processing.maintenance.counters import OTHER, Counters
from processing.maintenance.database_health import FIRST_PAUSE, LONGEST_PAUSE, Probe
from processing.maintenance.periodic import Schedule
from processing.maintenance.refusals import refusals

AT = datetime(2026, 1, 2, tzinfo=UTC)


def full_jitter() -> float:
    return 1.0


# Probe


def test_the_first_try_is_due_at_once() -> None:
    assert Probe().pause(0.0) == 0


def test_a_reached_database_is_tried_again_only_when_asked() -> None:
    probe = Probe()
    probe.succeeded()

    assert probe.pause(1000.0) is None
    probe.ask()
    assert probe.pause(1000.0) == 0


def test_pauses_double_up_to_a_cap_and_start_anew_after_success() -> None:
    probe = Probe(full_jitter)
    pauses = []
    now = 0.0
    for _ in range(8):
        probe.failed(now)
        pauses.append(probe.pause(now))
        now += pauses[-1]
        assert probe.pause(now) == 0
    assert pauses[:3] == [FIRST_PAUSE, FIRST_PAUSE * 2, FIRST_PAUSE * 4]
    assert max(pauses) == pauses[-1] == LONGEST_PAUSE

    probe.succeeded()
    probe.failed(now)
    assert probe.pause(now) == FIRST_PAUSE


def test_the_main_process_hears_only_news() -> None:
    probe = Probe()

    assert probe.failed(0.0)
    assert not probe.failed(1.0)
    assert probe.succeeded()
    assert not probe.succeeded()


def test_the_main_process_gets_an_answer_each_time_it_asks() -> None:
    probe = Probe()
    assert probe.succeeded()

    probe.ask()
    assert probe.succeeded()
    probe.ask()
    assert probe.failed(0.0)
    probe.ask()
    assert probe.failed(1.0)
    assert probe.succeeded()


def test_asking_does_not_shorten_the_pause_after_a_failure() -> None:
    probe = Probe(full_jitter)
    probe.failed(0.0)

    probe.ask()

    assert probe.pause(0.0) == FIRST_PAUSE


@given(st.lists(st.sampled_from(["ask", "ok", "bad"]), max_size=40))
def test_whoever_asked_is_answered_by_the_next_outcome(events: list[str]) -> None:
    probe = Probe()
    waiting = True
    for number, event in enumerate(events):
        if event == "ask":
            probe.ask()
            waiting = True
            continue
        told = probe.succeeded() if event == "ok" else probe.failed(float(number))
        assert told or not waiting
        assert probe.up == (event == "ok")
        assert (probe.pause(1e9) is None) == probe.up
        waiting = False


# Schedule


def test_duties_come_again_after_their_interval() -> None:
    schedule = Schedule({"a": 1.0, "b": 3.0}, 0.0)

    assert schedule.take(0.9) == []
    assert schedule.pause(0.9) == pytest.approx(0.1)
    assert schedule.take(3.0) == ["a", "b"]
    assert schedule.take(3.5) == []
    assert schedule.take(4.0) == ["a"]


def test_a_late_duty_is_not_made_up_for() -> None:
    schedule = Schedule({"a": 1.0}, 0.0)

    assert schedule.take(10.0) == ["a"]
    assert schedule.take(10.5) == []


def test_a_duty_can_be_made_due() -> None:
    schedule = Schedule({"a": 60.0}, 0.0)
    schedule.hasten("a", 1.0)

    assert schedule.pause(1.0) == 0.0
    assert schedule.take(1.0) == ["a"]


# Counters


KEY = ("payment.create", "done", "ok")


def test_counts_add_up_per_minute() -> None:
    counters = Counters()
    counters.add({KEY: 2}, 61.0)
    counters.add({KEY: 3}, 119.9)
    counters.add({KEY: 4}, 120.0)

    assert counters.take() == {(60, *KEY): 5, (120, *KEY): 4}
    assert not counters


def test_what_could_not_be_written_is_added_to_what_came_since() -> None:
    counters = Counters()
    counters.add({KEY: 2}, 0.0)
    taken = counters.take()
    counters.add({KEY: 3}, 1.0)

    counters.restore(taken)

    assert counters.take() == {(0, *KEY): 5}


def test_made_up_types_share_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters_module, "MOST_NAMES", 2)
    counters = Counters()
    for n in range(5):
        counters.add({(f"type-{n}", "failed", "unknown_type"): 1}, 0.0)

    counts = counters.take()

    assert counts[0, OTHER, "failed", "unknown_type"] == 3
    assert sum(counts.values()) == 5


def test_a_long_outage_gives_up_counts_not_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters_module, "MOST_KEYS", 3)
    counters = Counters()
    for minute in range(5):
        counters.add({KEY: 1}, minute * 60.0)

    assert len(counters.take()) == 3
    assert counters.lost == 2


# Refusals


def record(
    request_id: str = "r-1",
    type_: str = "payment.create",
    headers: Sequence[tuple[str, bytes]] = (),
) -> Record:
    pairs = [("ce_id", request_id.encode()), ("ce_type", type_.encode()), *headers]
    return ("requests", 0, 7, 1_700_000_000_000, b"k", b"{}", pairs, type_)


def test_a_refused_request_is_answered_failed_with_the_code() -> None:
    refused = refusals([record()], "database_unavailable", AT, 60)

    (write,) = refused.writes
    status = Status.decode(write.value)
    assert (status.id, status.type, status.state) == ("r-1", "payment.create", "failed")
    assert status.code == "database_unavailable"
    assert "send it again" in status.reason
    assert write.bump
    assert write.ttl == 60
    assert refused.counts == {("payment.create", "failed", "database_unavailable"): 1}
    assert refused.letters == []


def test_whoever_wants_a_hint_gets_it() -> None:
    refused = refusals([record(headers=[("ce_replyto", b"me")])], "shutdown", AT, 60)

    assert refused.writes[0].reply_to == "me"


def test_messages_that_nobody_sends_again_are_dead_letters() -> None:
    unreadable = ("requests", 0, 8, 0, None, b"", None, None)
    typeless = ("requests", 0, 9, 0, None, b"", [("ce_id", b"m")], None)
    foreign = ("theirs", 0, 1, 0, None, b"", [("ce_id", b"x"), ("ce_type", b"t")], "t")

    refused = refusals([unreadable, record(), typeless, foreign], "shutdown", AT, 60, ["theirs"])

    assert [letter.request_id for letter in refused.letters] == [None, "m", None]
    assert [letter.reason for letter in refused.letters] == ["malformed"] * 3
    assert "decoder had not run" in refused.letters[2].error
    told = [Status.decode(write.value) for write in refused.writes]
    assert [(s.id, s.code) for s in told] == [("r-1", "shutdown"), ("m", "malformed")]
    assert sum(refused.counts.values()) == 1


def test_a_refusal_takes_the_run_after_the_standing_one_and_never_covers_an_outcome() -> None:
    store = MemoryStatusStore()
    done = Status.decode(refusals([record()], "shutdown", AT, 60).writes[0].value)
    store.write(refusals([record()], "shutdown", AT, 60).writes)
    store.write(refusals([record()], "shutdown", AT, 60).writes)

    (status,) = store.read(["r-1"])
    assert status.run == done.run + 1

    value = b'{"v":"000019","id":"r-1","type":"t","state":"done","code":"ok","attempt":1,'
    value += b'"at":"2026-01-02T00:00:00Z"}'
    store.write([StatusWrite("r-1", value, 60)])
    store.write(refusals([record()], "shutdown", AT, 60).writes)
    assert store.read(["r-1"])[0].state == "done"
