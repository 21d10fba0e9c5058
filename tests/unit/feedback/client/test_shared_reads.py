"""Statuses that many tasks ask for at once: in parts, and none waits for all of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from feedback.client.shared_reads import AT_ONCE, MOST, SharedReads
from feedback.contract.states import State
from feedback.errors import StoreUnavailable
from feedback.status.status import Status, StatusFields
from tests.support.tasks import in_loop, soon


def status(result: bytes) -> Status:
    at = datetime(2030, 5, 1, tzinfo=UTC)
    fields = StatusFields("x", "t", State.DONE, 1, code="ok", attempt=1, at=at, result=result)
    return Status.decode(fields.encode(), whole=False)


LARGE = status(b'["%b"]' % (b"x" * 100_000))
SMALL = status(b"7")


class Store:
    """Answers a read when it is let go on."""

    def __init__(self, known: Status | None = None) -> None:
        self._known = known
        self.asked: list[list[str]] = []
        self.go = threading.Semaphore(0)
        self.away = False

    def read(self, ids: Sequence[str]) -> list[Status | None]:
        self.asked.append(list(ids))
        assert self.go.acquire(timeout=50)
        if self.away:
            raise StoreUnavailable("it is away")
        return [self._known for _ in ids]


def test_a_part_is_answered_before_the_next_one_is_read() -> None:
    async def work() -> None:
        store = Store(LARGE)
        reads = SharedReads(store.read)
        first = asyncio.ensure_future(reads.read(["first"]))
        await soon(lambda: len(store.asked) == 1)
        ids = [[f"{n}-{k}" for k in range(2 * AT_ONCE // 5)] for n in range(4)]
        many = [asyncio.ensure_future(reads.read(some)) for some in [*ids, ["x"] * 2 * AT_ONCE]]
        await asyncio.sleep(0)  # all have asked
        store.go.release()
        assert await first == [LARGE]
        await soon(lambda: len(store.asked) == 2)
        assert store.asked[1] == ids[0] + ids[1]
        store.go.release()
        await asyncio.gather(*many[:2])
        await soon(lambda: len(store.asked) == 3)
        assert store.asked[2] == ids[2] + ids[3]
        assert not any(one.done() for one in many[2:])
        many[2].cancel()
        store.go.release(2)
        assert len(await many[4]) == 2 * AT_ONCE
        await asyncio.to_thread(reads.close)
        assert len(store.asked) == 4

    in_loop(work)


def test_a_store_that_is_away_is_asked_once_for_all_who_wait() -> None:
    async def work() -> None:
        store = Store()
        reads = SharedReads(store.read)
        first = asyncio.ensure_future(reads.read(["first"]))
        await soon(lambda: len(store.asked) == 1)
        many = [asyncio.ensure_future(reads.read([str(n)])) for n in range(3 * AT_ONCE)]
        await asyncio.sleep(0)
        store.away = True
        store.go.release(2)
        told = await asyncio.gather(first, *many, return_exceptions=True)
        assert {type(one) for one in told} == {StoreUnavailable}
        assert len(store.asked) == 1
        await asyncio.to_thread(reads.close)

    in_loop(work)


@pytest.mark.parametrize("known", [LARGE, SMALL, None], ids=["large", "small", "none"])
def test_more_are_read_together_where_none_is_large(known: Status | None) -> None:
    async def work() -> None:
        store = Store(known)
        reads = SharedReads(store.read)
        first = asyncio.ensure_future(reads.read(["first"]))
        await soon(lambda: len(store.asked) == 1)
        many = [asyncio.ensure_future(reads.read([str(n)])) for n in range(3 * MOST)]
        await asyncio.sleep(0)
        store.go.release(100)
        await asyncio.gather(first, *many)
        await asyncio.to_thread(reads.close)
        assert max(map(len, store.asked)) == (AT_ONCE if known is LARGE else MOST)

    in_loop(work)
