"""A thread that could not be started is started by who needs it next, and ends with the client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence

import pytest

from feedback import AsyncClient, Client, Status
from feedback.client.lazy_thread import LazyThread
from feedback.client.shared_reads import SharedReads
from feedback.client.waiter import StatusWaiter
from feedback.contract.states import State
from feedback.status.memory_store import MemoryStatusStore
from tests.support.client import AnsweringConsumer, FakeProducer
from tests.support.thread_starts import refusing
from tests.support.waiting import eventually
from tests.unit.feedback.client.test_interrupted import ALARMED, run

REFUSED = "can't start new thread"
OURS = ("waits", "hints", "reads", "statuses", "deliveries")


def running() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name in OURS}


def left_by(work: Callable[[], None]) -> list[str]:
    """Names of the client's threads that are left when it is over."""
    before = running()
    work()
    return sorted(one.name for one in running() - before)


@pytest.mark.parametrize("name", ["waits", "hints"])
def test_a_wait_starts_what_another_could_not(name: str, store: MemoryStatusStore) -> None:
    def work() -> None:
        waits = StatusWaiter(store, "hints")
        with refusing(name), pytest.raises(RuntimeError, match=REFUSED):
            waits.watch("a")
        waits.listen(60)
        assert {"hints", "waits"} <= {one.name for one in running()}
        waits.close()

    assert left_by(work) == []


@pytest.mark.parametrize("name", ["waits", "hints"])
def test_waits_that_never_began_are_closed(name: str, store: MemoryStatusStore) -> None:
    def work() -> None:
        waits = StatusWaiter(store, "hints")
        with refusing(name), pytest.raises(RuntimeError, match=REFUSED):
            waits.watch("a")
        waits.close()
        waits.close()

    assert left_by(work) == []


@pytest.mark.parametrize("name", ["waits", "hints"])
def test_a_start_that_a_signal_handler_ends_is_none_that_failed(
    name: str, store: MemoryStatusStore
) -> None:
    def work() -> None:
        before = running()
        waits = StatusWaiter(store, "hints")
        with refusing(name, KeyboardInterrupt(), after=True), pytest.raises(KeyboardInterrupt):
            waits.watch("a")
        waits.watch("a")
        eventually(lambda: [one.name for one in running() - before].count(name) == 1)
        waits.close()

    assert left_by(work) == []


def test_a_read_starts_what_another_could_not() -> None:
    def read(ids: Sequence[str]) -> list[Status | None]:
        return [None] * len(ids)

    async def scenario() -> None:
        reads = SharedReads(read)
        with refusing("reads"), pytest.raises(RuntimeError, match=REFUSED):
            await reads.read(["a"])
        async with asyncio.timeout(60):
            assert await reads.read(["a"]) == [None]
        reads.close()

    assert left_by(lambda: asyncio.run(scenario())) == []


def test_reads_that_never_began_are_closed() -> None:
    async def scenario() -> None:
        reads = SharedReads(lambda _: [])
        with refusing("reads"), pytest.raises(RuntimeError, match=REFUSED):
            await reads.read(["a"])
        reads.close()

    assert left_by(lambda: asyncio.run(scenario())) == []


@pytest.mark.parametrize("name", ["waits", "hints", "reads", "aside"])
def test_a_client_of_asyncio_goes_on_when_a_thread_could_not_be_started(
    name: str, producer: FakeProducer, store: MemoryStatusStore, consumer: AnsweringConsumer
) -> None:
    async def scenario() -> None:
        async with AsyncClient(producer, store, "requests") as client:
            first: Awaitable[object] = client.submit("t", 1)
            if name == "reads":
                await first
                first = client.status("a")
            with refusing(name), pytest.raises(RuntimeError, match=REFUSED):
                await first
            request_id = await client.submit("t", 1)
            consumer.say(request_id, State.DONE)
            assert (await client.wait(request_id, 60)).state == "done"
            assert await client.status(request_id) is not None

    assert left_by(lambda: asyncio.run(scenario())) == []


@pytest.mark.parametrize("name", ["statuses", "deliveries"])
def test_a_client_that_can_t_be_made_leaves_no_thread(
    name: str, producer: FakeProducer, store: MemoryStatusStore
) -> None:
    def work() -> None:
        with refusing(name), pytest.raises(RuntimeError, match=REFUSED):
            Client(producer, store, "requests")

    assert left_by(work) == []


def test_a_thread_does_not_wait_for_its_own_end() -> None:
    raised: list[RuntimeError] = []

    def joins() -> None:
        try:
            thread.join()
        except RuntimeError as error:
            raised.append(error)

    thread = LazyThread("lazy", joins)
    thread.start()
    thread.join()
    thread.join()
    assert [str(error) for error in raised] == ["cannot join current thread"]


def test_what_is_left_of_an_interrupted_start_keeps_the_next_one_from_nothing() -> None:
    """The signal comes at any moment of it."""
    program = """
import random
from feedback.client.lazy_thread import LazyThread

def act(thread):
    thread.start()
"""
    loop = """
interrupted = []
for _ in range(4000):
    runs = []
    thread = LazyThread("lazy", lambda runs=runs: runs.append(1))
    signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00001, 0.0002))
    try:
        act(thread)
    except Exception:  # also what the start itself raises as it is interrupted
        interrupted.append((thread, runs))
    signal.setitimer(signal.ITIMER_REAL, 0)
for thread, _ in interrupted:
    thread.start()
for thread, _ in interrupted:
    thread.join()
print(len(interrupted) > 50, {len(runs) for _, runs in interrupted})
os._exit(0)
"""
    assert run(program + ALARMED + loop) == "True {1}\n"
