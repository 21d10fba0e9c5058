"""Nothing is lost with a main process, keys keep their order when partitions change hands.

Nobody sends anything again here. Effects stand in a table without a unique key, in their order;
entries of handlers stand in a file.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.service import WAIT, Bench, Raw
from tests.support.waiting import eventually

APP = "tests.support.steps_app:app"
CLASSIC = {"ONCEPOOL_KAFKA_PROTOCOL": "classic", "ONCEPOOL_KAFKA_SESSION_TIMEOUT": "6"}
PROTOCOLS = {
    "range": {**CLASSIC, "ONCEPOOL_KAFKA_ASSIGNOR": "range"},
    "cooperative-sticky": {**CLASSIC, "ONCEPOOL_KAFKA_ASSIGNOR": "cooperative-sticky"},
    "consumer": {"ONCEPOOL_KAFKA_PROTOCOL": "consumer"},
}
PARTITIONS = 4
KEYS, EACH, MALFORMED = 40, 60, 10


class Steps:
    """What the handlers of the app leave."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.bench = bench
        self._file = folder / "entries"
        bench.query(
            f"CREATE TABLE {bench.schema}.steps (seq bigserial, id text, key text, number int)"
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

    def send(self, kind: str, name: str, key: str, number: int, seconds: float = 0.0) -> None:
        payload = {"key": key, "number": number, "seconds": seconds, "numbers": [number]}
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


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_that_join_leave_and_die_lose_nothing_and_keep_the_order(
    bench: Bench, steps: Steps, protocol: str
) -> None:
    settings = {**steps.settings, **PROTOCOLS[protocol], "ONCEPOOL_WORKERS": "1"}
    first = bench.start(**settings)
    raw = Raw(bench)
    for number in range(1, EACH + 1):
        for key in range(KEYS):
            steps.send("step", f"{key}-{number}", str(key), number, 0.005)
        if number <= MALFORMED:
            raw.send(None, {"ce_type": b"step"}, b"{}")
    bench.client.flush()

    second = bench.start(**settings)
    assert first.stop() == 0
    in_peace = sum(n - 1 for n in steps.entries.values())
    assert bench.done() < KEYS * EACH, "all was done before the kill"
    second.kill()
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


def commit(bench: Bench, offsets: dict[int, tuple[int, str]]) -> None:
    """Sets committed offsets and their metadata as somebody else would, in an empty group."""
    consumer = Consumer({"bootstrap.servers": bench.stack.kafka, "group.id": bench.group})
    wanted = [TopicPartition(bench.topic, p, o, text) for p, (o, text) in offsets.items()]

    def taken() -> bool:
        try:
            done = consumer.commit(offsets=wanted, asynchronous=False)
        except Exception:  # noqa: BLE001 - members are still on their way out
            return False
        return done is not None and all(p.error is None for p in done)

    eventually(taken, WAIT)
    consumer.close()


def test_what_left_a_trace_is_answered_and_what_left_none_runs(bench: Bench, steps: Steps) -> None:
    """As after the death of an instance that had committed everything and run some of it."""
    for kind in ("step", "once", "charge", "sum"):
        steps.send(kind, kind, "k", 1)
    bench.client.flush()
    commit(bench, {p: (end, "1;dead-1;0") for p, end in _ends(bench).items() if end})

    first = bench.start(**steps.settings)
    expected = {"step": "done", "once": "failed", "charge": "done", "sum": "done"}
    assert {name: str(bench.client.wait(name, WAIT).state) for name in expected} == expected
    once = bench.client.status("once")
    assert once is not None
    assert once.code == "instance_died"
    for _ in range(2):
        steps.send("step", "step", "k", 1)
    resends = f"SELECT resends FROM {bench.schema}.requests WHERE id = 'step'"
    eventually(lambda: bench.query(resends) == [(2,)], WAIT, lambda: first.log)
    assert first.stop() == 0
    assert steps.entries == {"step": 1, "charge": 1, "sum": 1}

    # Nothing of it is lost with the next instance, nothing but pure computation runs again.
    commit(bench, {p: (end, "1;dead-1;0") for p, end in _ends(bench).items() if end})
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
    bench: Bench, steps: Steps
) -> None:
    """What the old instance gave up unstarted the new one knows to be so."""
    settings = {**steps.settings, "ONCEPOOL_WORKERS": "1"}
    first = bench.start(**settings)
    for number in range(50):
        steps.send("once", f"once-{number}", str(number % 7), number, 0.1)
    bench.client.flush()
    eventually(lambda: bench.done() >= 2, WAIT, lambda: first.log)
    assert first.stop() == 0
    assert bench.done() < 50, "all was done before the stop"
    second = bench.start(**settings)
    eventually(lambda: bench.done() == 50, WAIT, lambda: f"{bench.states()} {second.log}")
    assert second.stop() == 0
    assert set(steps.entries.values()) == {1}


def _pairs(bench: Bench, select: str) -> list[tuple[Any, Any]]:
    return [(a, b) for a, b in bench.query(f"{select} FROM {bench.schema}.requests")]


def _ends(bench: Bench) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bench.stack.kafka, "group.id": "looks"})
    found = {
        p: consumer.get_watermark_offsets(TopicPartition(bench.topic, p), 10)[1] for p in range(4)
    }
    consumer.close()
    return found


def test_marks_that_make_no_sense_are_a_line_and_nothing_else(bench: Bench, steps: Steps) -> None:
    raw = Raw(bench)
    for partition in range(4):
        for number in range(4):
            raw.send_to(partition, f"{partition}-{number}", b'{"key": "k", "number": 1}')
    commit(
        bench,
        {
            0: (2, "of another program"),
            1: (2, "1;someone-7;99"),  # above the committed offset
            2: (3, "1;someone-7;0"),  # and its beginning is gone
            3: (3, "1;someone-7;0"),
        },
    )
    admin = AdminClient({"bootstrap.servers": bench.stack.kafka})
    cut = TopicPartition(bench.topic, 2, 2)
    next(iter(admin.delete_records([cut]).values())).result(30)

    instance = bench.start(**steps.settings, ONCEPOOL_AUTO_OFFSET_RESET="latest")
    expected = {"0-2", "0-3", "1-2", "1-3", "2-2", "2-3", "3-0", "3-1", "3-2", "3-3"}
    eventually(lambda: bench.done() >= len(expected), WAIT, lambda: instance.log)
    assert {name for name, _, _ in steps.effects} == expected
    instance.says("nothing is read again: the low mark makes no sense")
    instance.says("the log begins behind the low mark")
    assert instance.stop() == 0
    assert set(steps.entries.values()) == {1}
