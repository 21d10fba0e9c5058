from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import pytest

from feedback.backoff import Breaker
from feedback.contract.states import State
from feedback.errors import StoreUnavailable
from feedback.status.memory_store import MemoryStatusStore
from feedback.status.sender import SenderStats, StatusSender
from feedback.status.status import StatusFields, StatusWrite
from tests.support import eventually

AT = datetime(2030, 5, 1, tzinfo=UTC)


def write(name: str, size: int = 0) -> StatusWrite:
    value = StatusFields(
        name, "t", State.DONE, 1, code="ok", attempt=1, at=AT, error="x" * size
    ).encode()
    return StatusWrite(name, value, 60)


class Gate(MemoryStatusStore):
    """A store whose writes wait at a gate, and which remembers what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.at_gate = threading.Event()
        self.batches: list[list[str]] = []

    def write(self, writes: Sequence[StatusWrite]) -> None:
        self.at_gate.set()
        assert self.gate.wait(10)
        self.batches.append([write.id for write in writes])
        super().write(writes)


@pytest.fixture
def store() -> Gate:
    return Gate()


@pytest.fixture
def sender(store: Gate) -> Iterator[StatusSender]:
    sender = StatusSender(store, max_queue=5, max_bytes=10_000, breaker=Breaker(0.02, 0.05))
    yield sender
    store.gate.set()
    sender.close()


def hold(store: Gate, sender: StatusSender) -> None:
    """The thread has taken a first status and waits at the gate."""
    store.gate.clear()
    store.at_gate.clear()
    sender.put([write("first")])
    assert store.at_gate.wait(10)


def test_what_is_put_is_written(sender: StatusSender, store: Gate) -> None:
    sender.put([write("a"), write("b")])
    sender.put([])
    assert sender.flush(10)
    assert [status and status.id for status in store.read(["a", "b"])] == ["a", "b"]
    assert sender.stats() == SenderStats(queued=0, written=2, dropped=0, failures=0, open=False)


def test_what_comes_during_a_write_goes_out_together(sender: StatusSender, store: Gate) -> None:
    hold(store, sender)
    for name in "abc":
        sender.put([write(name)])
    store.gate.set()
    assert sender.flush(10)
    assert store.batches == [["first"], ["a", "b", "c"]]


def test_a_full_queue_drops_its_oldest(sender: StatusSender, store: Gate) -> None:
    hold(store, sender)
    sender.put([write(name) for name in "abcd"])
    sender.put([write(name) for name in "efg"])
    assert sender.stats().queued == 6
    store.gate.set()
    assert sender.flush(10)
    assert store.batches[1:] == [["c", "d", "e", "f", "g"]]
    assert sender.dropped == 2


def test_large_values_fill_the_queue_too(sender: StatusSender, store: Gate) -> None:
    hold(store, sender)
    for name in "abc":
        sender.put([write(name, 4_500)])
    store.gate.set()
    assert sender.flush(10)
    assert store.batches[1:] == [["b", "c"]]
    assert sender.dropped == 1


def test_put_does_not_wait_for_the_store(sender: StatusSender, store: Gate) -> None:
    hold(store, sender)
    for _ in range(1_000):  # the store answers none of them
        sender.put([write("a")])
    assert not sender.flush(0.01)


def test_with_the_store_away_statuses_wait_and_come_later(
    sender: StatusSender, store: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "oncepool")
    store.available = False
    sender.put([write("a"), write("b"), write("c")])
    eventually(lambda: sender.stats().failures >= 3)
    assert sender.stats().open
    assert sender.stats().queued == 3
    store.available = True
    eventually(lambda: sender.stats().written == 3)
    assert not sender.stats().open
    probes = [batch for batch in store.batches[1:-1] if batch != ["a"]]
    assert not probes  # one status at a time until the store was back
    assert store.batches[-1] == ["b", "c"]
    # Said once, not at every try.
    said = [record.levelname for record in caplog.records if record.name == "oncepool.statuses"]
    assert said == ["WARNING", "INFO"], caplog.text


def test_put_back_statuses_are_the_oldest(sender: StatusSender, store: Gate) -> None:
    hold(store, sender)
    store.available = False
    sender.put([write(name) for name in "abcde"])
    store.gate.set()
    eventually(lambda: sender.stats().failures)
    assert sender.dropped == 1  # "first" came back into a full queue
    store.available = True
    eventually(lambda: sender.stats().written == 5)


def test_flush_tries_at_once_and_does_not_sit_out_an_outage(store: Gate) -> None:
    sender = StatusSender(store, breaker=Breaker(1_000, 1_000))
    store.available = False
    sender.put([write("a")])
    eventually(lambda: sender.stats().failures)
    assert not sender.flush(1_000)
    assert sender.stats().failures == 2
    store.available = True
    assert sender.flush(10)
    assert sender.close()


def test_catching_up_waits_for_the_store_but_not_for_one_that_is_away_or_slow(
    sender: StatusSender, store: Gate
) -> None:
    hold(store, sender)
    start = time.monotonic()
    sender.catch_up(0.05)
    assert time.monotonic() - start >= 0.05
    sender.catch_up(3600)
    assert sender.stats().queued == 1, "it was waited for again, though it is slow"
    store.gate.set()
    assert sender.flush(10)
    sender.catch_up(3600)
    hold(store, sender)
    threading.Timer(0.05, store.gate.set).start()
    sender.catch_up(10)
    assert sender.stats().queued == 0
    store.available = False
    sender.put([write("later")])
    eventually(lambda: sender.stats().open)
    sender.catch_up(3600)


def test_a_status_that_cannot_be_written_is_dropped_alone(
    sender: StatusSender, store: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    hold(store, sender)
    broken = write("a")._replace(id="broken\udc80", reply_to="channel")
    sender.put([write("a"), broken, write("b")])
    store.gate.set()
    eventually(lambda: sender.stats().written == 3)
    assert sender.dropped == 1
    assert "broken" in caplog.text
    sender.put([write("c")])
    assert sender.flush(10)


def test_closing_ends_the_thread_and_drops_what_comes_later(store: Gate) -> None:
    sender = StatusSender(store)
    sender.put([write("a")])
    assert sender.close(10)
    assert not sender._thread.is_alive()
    sender.put([write("b")])
    assert sender.stats() == SenderStats(queued=0, written=1, dropped=1, failures=0, open=False)
    assert sender.close()


def test_closing_with_the_store_away_is_quick_and_counts(store: Gate) -> None:
    sender = StatusSender(store)
    store.available = False
    sender.put([write("a"), write("b")])
    assert not sender.close(3600)
    assert sender.dropped == 2
    assert not sender._thread.is_alive()


def test_what_fails_after_closing_counts_as_dropped(store: Gate, sender: StatusSender) -> None:
    hold(store, sender)
    assert not sender.close(0.01)
    assert sender.stats() == SenderStats(queued=1, written=0, dropped=0, failures=0, open=False)

    store.available = False
    store.gate.set()

    eventually(lambda: not sender._thread.is_alive())
    assert sender.stats() == SenderStats(queued=0, written=0, dropped=1, failures=1, open=True)


def test_the_error_of_a_store_is_not_swallowed_by_the_protocol() -> None:
    store = MemoryStatusStore()
    store.available = False
    with pytest.raises(StoreUnavailable):
        store.write([write("a")])
    with pytest.raises(StoreUnavailable):
        store.subscribe("channel")


class Narrow(Gate):
    """A store that takes no batch with more than so many bytes, as with a time-out for sending."""

    most = 5_000

    def write(self, writes: Sequence[StatusWrite]) -> None:
        if sum(len(write.value) for write in writes) > self.most:
            self.batches.append([write.id for write in writes])
            raise StoreUnavailable("timed out")
        super().write(writes)


@pytest.mark.parametrize("before", [0, 3])
def test_one_that_does_not_get_through_is_left_out(
    before: int, caplog: pytest.LogCaptureFixture
) -> None:
    store = Narrow()
    sender = StatusSender(store, breaker=Breaker(0.001, 0.002))
    small = [write(f"small-{n}") for n in range(6)]

    sender.put([*small[:before], write("large", 20_000), *small[before:]])

    eventually(lambda: sender.stats().written == 6)
    eventually(lambda: sender.stats().dropped == 1)
    assert None not in store.read([one.id for one in small])
    assert store.read(["large"]) == [None]
    assert "'large'" in caplog.text
    assert "does not get through" in caplog.text
    sender.put([write("later")])
    assert sender.flush(10)
    sender.close()


def test_nothing_is_left_out_while_the_store_is_away() -> None:
    store = Narrow()
    store.available = False
    sender = StatusSender(store, breaker=Breaker(0.001, 0.002))
    sender.put([write(f"{n}") for n in range(3)])
    eventually(lambda: sender.stats().failures > 20)
    store.available = True
    assert eventually(lambda: sender.flush(1))
    assert sender.dropped == 0
    sender.close()


def test_one_that_is_larger_than_the_queue_may_be_pushes_nobody_out(
    store: Gate, sender: StatusSender, caplog: pytest.LogCaptureFixture
) -> None:
    hold(store, sender)
    sender.put([write("a"), write("larger", 20_000), write("b")])
    store.gate.set()
    assert sender.flush(10)
    assert sender.dropped == 1
    assert None not in store.read(["a", "b"])
    assert "'larger' is left out" in caplog.text
