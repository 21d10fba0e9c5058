"""Nothing is lost with a main process, keys keep their order when partitions change hands.

Nobody sends anything again here. Effects stand in a table without a unique key, in their order;
entries of handlers stand in a file.
"""

from __future__ import annotations

import re
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.chaos.real.orders import Orders
from tests.support.committed_offsets import commit_as_others
from tests.support.service import WAIT, Bench, Raw
from tests.support.waiting import eventually

APP = "tests.support.steps_app:app"
CLASSIC = {"ONCEPOOL_KAFKA_PROTOCOL": "classic", "ONCEPOOL_KAFKA_SESSION_TIMEOUT": "6"}
PROTOCOLS = {
    "range": {**CLASSIC, "ONCEPOOL_KAFKA_ASSIGNOR": "range"},
    "cooperative-sticky": {**CLASSIC, "ONCEPOOL_KAFKA_ASSIGNOR": "cooperative-sticky"},
    "consumer": {"ONCEPOOL_KAFKA_PROTOCOL": "consumer"},
}
POINTS = {
    "range": "commit_answered",
    "cooperative-sticky": "handed_out",
    "consumer": "commit_before",
}
"""Where the main process dies; `scripts/kills --points` has the others."""
PARTITIONS = 4
KEYS, EACH, MALFORMED = 40, 60, 10


class Steps:
    """What the handlers of the app leave."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.bench = bench
        self._file = folder / "entries"
        bench.query(
            f"CREATE TABLE {bench.schema}.steps"
            " (seq bigserial, id text, key text, number int, main int)"
        )
        self.settings = {
            "ONCEPOOL_APP": APP,
            "STEPS_TABLE": f"{bench.schema}.steps",
            "STEPS_ENTRIES": str(self._file),
        }

    @property
    def entries(self) -> Counter[str]:
        return Counter(self._file.read_text().split()) if self._file.exists() else Counter()

    @property
    def effects(self) -> list[tuple[str, str, int]]:
        found = self.bench.query(
            f"SELECT id, key, number FROM {self.bench.schema}.steps ORDER BY seq"
        )
        return [(str(name), str(key), int(number)) for name, key, number in found]

    def send(
        self, kind: str, name: str, key: str, number: int, seconds: float = 0.0, **more: str
    ) -> None:
        payload = {"key": key, "number": number, "seconds": seconds, "numbers": [number], **more}
        self.bench.client.submit(kind, payload, request_id=name, key=key)

    @property
    def disorder(self) -> list[tuple[str, int]]:
        """Effects that stand behind a later one of their key."""
        found, highest = [], dict[str, int]()
        for _, key, number in self.effects:
            if number < highest.get(key, 0):
                found.append((key, number))
            highest[key] = max(number, highest.get(key, 0))
        return found


@pytest.fixture
def steps(bench: Bench, tmp_path: Path) -> Steps:
    return Steps(bench, tmp_path)


@pytest.mark.long  # the chaos run shows it with one of them
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_that_join_leave_and_die_lose_nothing_and_keep_the_order(
    bench: Bench, steps: Steps, tmp_path: Path, protocol: str
) -> None:
    settings = {**steps.settings, **PROTOCOLS[protocol], "ONCEPOOL_WORKERS": "1"}
    settings |= {"ONCEPOOL_MAX_IN_HAND": "200", "CHAOS_ORDERS": str(tmp_path)}
    first = bench.start(**settings)
    raw = Raw(bench)
    for number in range(1, EACH + 1):
        for key in range(KEYS):
            steps.send("step", f"{key}-{number}", str(key), number, 0.005)
        if number <= MALFORMED:
            raw.send(None, {"ce_type": b"step"}, b"{}")
    bench.client.flush()

    second = bench.start(**settings, program="tests.chaos.kills.pointed")
    assert first.stop() == 0
    in_peace = sum(n - 1 for n in steps.entries.values())
    assert bench.done() < KEYS * EACH, "all was done before the kill"
    assert Orders(tmp_path).give(POINTS[protocol], "kill").evidence(WAIT) is not None
    assert second.process.wait(WAIT) == -signal.SIGKILL
    third = bench.start(**settings)

    def complete() -> bool:
        letters = bench.query(f"SELECT count(*) FROM {bench.schema}.dead_letters")
        return bench.done() == KEYS * EACH and letters == [(MALFORMED,)]

    eventually(complete, WAIT, lambda: f"{bench.states()} {third.log}")
    assert Counter(name for name, _, _ in steps.effects) == Counter(
        f"{key}-{number}" for key in range(KEYS) for number in range(1, EACH + 1)
    )
    assert steps.disorder == []
    assert in_peace <= 2, "handlers were entered again after a hand-over"
    assert bench.query(f"SELECT sum(resends) FROM {bench.schema}.requests") == [(0,)]
    assert third.stop() == 0
    assert "reading again what was not finished" in third.log


def test_what_left_a_trace_is_answered_and_what_left_none_runs(bench: Bench, steps: Steps) -> None:
    """As after the death of an instance that had committed everything and run some of it."""
    for kind in ("step", "once", "charge", "sum"):
        steps.send(kind, kind, "k", 1)
    bench.client.flush()
    _all_committed(bench)

    first = bench.start(**steps.settings)
    expected = {"step": "done", "once": "failed", "charge": "done", "sum": "done"}
    assert {name: str(bench.client.wait(name, WAIT).state) for name in expected} == expected
    once = bench.status("once")
    assert once is not None
    assert once.code == "instance_died"
    for _ in range(2):
        steps.send("step", "step", "k", 1)
    resends = f"SELECT resends FROM {bench.schema}.requests WHERE id = 'step'"
    eventually(lambda: bench.query(resends) == [(2,)], WAIT, lambda: first.log)
    assert first.stop() == 0
    assert steps.entries == {"step": 1, "charge": 1, "sum": 1}

    # Nothing of it is lost with the next instance, nothing but pure computation runs again.
    _all_committed(bench)
    second = bench.start(**steps.settings)
    eventually(lambda: steps.entries["sum"] == 2, WAIT, lambda: second.log)
    steps.send("step", "last", "k", 2)  # of the same key, so behind all of them
    assert bench.client.wait("last", WAIT).state == "done"
    assert steps.entries == {"step": 1, "charge": 1, "sum": 2, "last": 1}
    rows = dict(_pairs(bench, "SELECT id, state || '/' || code || ' ' || run || ' ' || resends"))
    assert {name: rows[name] for name in ("step", "once", "charge")} == {
        "step": "done/ok 1 2", "once": "failed/instance_died 1 0", "charge": "done/ok 1 0",
    }  # fmt: skip
    # A message of the same id at another place is a resend, of what has failed, too.
    steps.send("once", "once", "k", 1)
    eventually(lambda: steps.entries["once"] == 1, WAIT, lambda: second.log)
    assert second.stop() == 0


def test_what_must_not_be_entered_twice_runs_once_through_a_deployment(
    bench: Bench, steps: Steps, tmp_path: Path
) -> None:
    """What the old instance gave up unstarted the new one knows to be so."""
    stopped = tmp_path / "stopped"
    settings = {**steps.settings, "ONCEPOOL_WORKERS": "1"}
    first = bench.start(**settings)
    for number in range(50):
        steps.send("once", f"once-{number}", str(number % 7), number, 0.5, until=str(stopped))
    bench.client.flush()
    eventually(lambda: bench.done() >= 2, WAIT, lambda: first.log)
    assert first.stop() == 0
    assert bench.done() < 50, "all was done before the stop"
    stopped.touch()
    second = bench.start(**settings)
    eventually(lambda: bench.done() == 50, WAIT, lambda: f"{bench.states()} {second.log}")
    assert second.stop() == 0
    assert set(steps.entries.values()) == {1}


def _pairs(bench: Bench, select: str) -> list[tuple[Any, Any]]:
    return [(a, b) for a, b in bench.query(f"{select} FROM {bench.schema}.requests")]


def _all_committed(bench: Bench) -> None:
    """By one that has died and finished nothing."""
    consumer = Consumer({"bootstrap.servers": bench.stack.kafka, "group.id": "looks"})
    places = [(bench.topic, p) for p in range(PARTITIONS)]
    ends = {
        place: consumer.get_watermark_offsets(TopicPartition(*place), 10)[1] for place in places
    }
    consumer.close()
    told = {place: (end, "1;dead-1;0") for place, end in ends.items() if end}
    commit_as_others(bench.stack.kafka, bench.group, told)


@pytest.mark.long
def test_who_reads_nothing_again_names_what_was_left_to_it(bench: Bench, tmp_path: Path) -> None:
    """The first instance counts on its heir, which has `read_again` off."""
    first = bench.start(ONCEPOOL_WORKERS="1")
    ends, payload = tmp_path / "ends", {"table": bench.table}
    held = {**payload, "seconds": 50.0, "until": str(ends)}
    runs = bench.client.submit("paced", held, key="k")
    eventually(lambda: bench.said()["running"] == 1, WAIT, lambda: first.log)
    names = [bench.client.submit("effect", payload, key="k") for _ in range(20)]
    eventually(lambda: bench.said()["in_hand"] == 21, WAIT, lambda: first.log)
    first.process.send_signal(signal.SIGTERM)
    first.says("draining")
    ends.touch()
    assert first.process.wait(WAIT) == 0

    second = bench.start(ONCEPOOL_READ_AGAIN="off")
    [left] = re.findall(r"read_again is off here and was on .* at_most=(\d+)", second.log)
    assert int(left) in (20, 21), second.log  # the one that ran to its end here may count
    assert {status.state for status in bench.statuses(names) if status} == {"accepted"}
    for name in names:
        bench.client.submit("effect", payload, key="k", request_id=name)
    for name in names:
        assert bench.client.wait(name, WAIT).state == "done"
    bench.check_books({runs, *names})
