"""Rows that wait behind what runs of their key, and those of other keys that are wanted then."""

from __future__ import annotations

from typing import Any

import pytest

from feedback.contract.record import KEY, NOWHERE, TYPE, Record
from processing.ipc.frames import Report, RunChunk, WantRows
from processing.pool.actions import Send, Spawn, Tell
from processing.pool.demand import LONGEST_KEY, MOST_KEYS, PATIENCE, REPLACE_AFTER, STUCK_AFTER
from processing.pool.pool import Pool
from processing.settings import PoolSettings

BACKEND = (4711, "2026-01-01 00:00:00+00")


def due(name: str, order: int, key: bytes | None, kind: str = "slow") -> Record:
    headers: Any = [("ce_id", name.encode()), ("ce_type", kind.encode())]
    return ("topic", NOWHERE, NOWHERE, 0, key, b"{}", headers, kind, order)


class Queue:
    """A pool and what it wants; nobody knows how long a run takes, so each goes alone."""

    def __init__(self, workers: int = 2) -> None:
        self.pool = Pool(PoolSettings(workers=workers, max_due=1000, ordering="key"))
        self.now = 0.0
        self.running: list[tuple[int, RunChunk]] = []
        for action in self.pool.plan(0.0):
            assert isinstance(action, Spawn)
            self.pool.crew.connected(action.worker, BACKEND)
            self.pool.ready(action.worker)

    def ask(self, seconds: float = 0.0) -> WantRows | None:
        """What is wanted in so many seconds."""
        self.now += seconds
        self.plan()
        told = [a.frame for a in self.pool.ask(self.now) if isinstance(a, Tell)]
        wants = [frame for frame in told if isinstance(frame, WantRows)]
        return wants[0] if wants else None

    def claim(self, want: WantRows | None, *rows: tuple[str, bytes | None, int]) -> None:
        """So many rows of a type and a key."""
        assert want is not None
        records = [
            due(f"{want.order}-{kind}-{key!r}-{i}", want.order, key, kind)
            for kind, key, n in rows
            for i in range(n)
        ]
        self.pool.claimed(want.order, [(record, None) for record in records], self.now)
        self.plan()

    def plan(self) -> None:
        sent = [a for a in self.pool.plan(self.now) if isinstance(a, Send)]
        self.running += [(a.worker, a.frame) for a in sent if isinstance(a.frame, RunChunk)]

    def keys(self) -> list[bytes | None]:
        return [record[KEY] for _, chunk in self.running for record in chunk.records]

    def end(self, n: int = 1) -> None:
        """Those that were begun first end, after a second each: too long to share a chunk."""
        for _ in range(n):
            worker, chunk = self.running.pop(0)
            times = {record[TYPE] or "": (1, 1.0) for record in chunk.records}
            self.pool.report(worker, Report(chunk.number, [], [], {}, times, database_up=True))
            self.plan()


@pytest.fixture
def hot() -> Queue:
    """One of a hundred rows of a key runs, on one of two workers."""
    queue = Queue()
    queue.claim(queue.ask(), ("slow", b"hot", 100))
    assert queue.keys() == [b"hot"]
    return queue


def test_rows_of_other_keys_are_wanted_where_a_worker_has_room(hot: Queue) -> None:
    assert hot.ask(STUCK_AFTER / 2) is None
    want = hot.ask(STUCK_AFTER)
    assert want is not None
    assert (want.most, want.paused, want.held_keys) == (100, [], [b"hot"])
    hot.claim(want, ("slow", b"a", 2), ("slow", None, 1))
    assert hot.keys() == [b"hot", b"a"]


def test_an_open_want_of_other_keys_stays(hot: Queue) -> None:
    assert hot.ask(STUCK_AFTER) is not None
    for _ in range(5):
        assert hot.ask(REPLACE_AFTER) is None


def test_where_no_worker_has_room_a_hot_key_is_a_type_that_waits_in_numbers(hot: Queue) -> None:
    hot.claim(hot.ask(STUCK_AFTER), ("slow", b"a", 3))
    want = hot.ask(STUCK_AFTER)
    assert want is not None
    assert (want.most, want.paused, want.held_keys) == (2, ["slow"], [])


def test_the_key_is_wanted_again_before_its_rows_run_out(hot: Queue) -> None:
    assert hot.ask(STUCK_AFTER) is not None
    for _ in range(60):
        hot.end()
        want = hot.ask(0.01)
        if want is not None and not want.held_keys:
            break
    assert want is not None
    assert want.held_keys == []
    assert want.paused == []
    assert len(hot.pool.wants) > 1


def test_other_keys_are_wanted_though_rows_of_one_go_and_come_in_time(hot: Queue) -> None:
    wants: list[WantRows] = []
    for _ in range(300):
        hot.end()
        want = hot.ask(0.2)
        if want is not None:
            wants.append(want)
            if not want.held_keys:
                hot.claim(want, ("slow", b"hot", want.most))
    late = [want.held_keys for want in wants[-20:]]
    assert late.count([]) > 5
    assert late.count([b"hot"]) > 5


def test_what_comes_of_other_keys_puts_off_no_look_at_what_is_to_be_given_back(hot: Queue) -> None:
    for second in range(1, int(PATIENCE)):
        want = hot.ask(STUCK_AFTER)
        if want is not None and want.held_keys:
            hot.claim(want, ("slow", b"%d" % second, 1))
            hot.running.append(hot.running.pop(0))
            hot.end()
    hot.now += STUCK_AFTER
    gone = hot.pool.take_excess(hot.now)
    assert {record[KEY] for record in gone} == {b"hot"}
    assert 50 < len(gone) < 100


def test_the_keys_that_hold_most_are_named_and_no_endless_ones() -> None:
    queue = Queue(workers=MOST_KEYS + 3)
    keys = [b"%04d" % n for n in range(MOST_KEYS)]
    rows = [("slow", key, 3) for key in keys]
    rows += [("slow", b"few", 2), ("slow", b"x" * (LONGEST_KEY + 1), 9)]
    queue.claim(queue.ask(), *rows)
    assert len(queue.running) == MOST_KEYS + 2
    want = queue.ask(STUCK_AFTER)
    assert want is not None
    assert want.held_keys == keys
