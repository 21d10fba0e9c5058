from __future__ import annotations

import threading
import time
import uuid

import pytest

from feedback.contract import ids
from feedback.contract.ids import time_of, uuid7


def test_an_id_is_a_uuid_of_version_7_with_the_time_in_front() -> None:
    before = time.time_ns() // 1_000_000
    made = uuid7()
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert before - 1_000 <= made.int >> 80 <= time.time_ns() // 1_000_000 + 1_000


def test_ids_of_a_process_are_in_order_and_unique_over_threads() -> None:
    made: list[list[uuid.UUID]] = [[] for _ in range(4)]
    threads = [
        threading.Thread(target=lambda mine=mine: mine.extend(uuid7() for _ in range(5_000)))
        for mine in made
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(mine == sorted(mine) for mine in made)
    assert len({one for mine in made for one in mine}) == 20_000


def test_a_clock_set_back_and_a_full_counter_keep_the_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000)
    last = ((1 << 40) + 7) * 4096 + 4095
    monkeypatch.setattr(ids, "_last", last)
    monkeypatch.setattr(ids, "_counter", (1 << 30) - 2)
    made = [uuid7() for _ in range(4)]
    assert made == sorted(set(made))
    assert [one.int >> 80 for one in made] == [(1 << 40) + 7] + [(1 << 40) + 8] * 3
    assert all(one.version == 7 for one in made)


def test_an_id_tells_when_it_was_made_to_the_microsecond(monkeypatch: pytest.MonkeyPatch) -> None:
    nanoseconds = (time.time_ns() + 10**12) // 1000 * 1000
    monkeypatch.setattr(time, "time_ns", lambda: nanoseconds)
    made = time_of(str(uuid7()))
    assert made is not None
    assert abs(made - nanoseconds / 1e9) < 2e-6


@pytest.mark.parametrize(
    "name", ["order-17", "b653990e-cee5-47b4-95e2-8ced977b68ee", "z" * 14 + "7" + "z" * 21, ""]
)
def test_other_ids_tell_no_time(name: str) -> None:
    assert time_of(name) is None
