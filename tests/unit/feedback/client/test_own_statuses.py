"""What a client says of requests whose status it has still to write, and what it remembers."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable, Sequence

import pytest

from feedback import AsyncClient, Client, StoreUnavailable
from feedback.contract.states import State
from feedback.status.memory_store import MemoryStatusStore
from feedback.status.status import Status, StatusWrite
from tests.support import eventually
from tests.support.client import AnsweringConsumer, FakeProducer


class HeldStore(MemoryStatusStore):
    """One whose writes wait."""

    def __init__(self) -> None:
        super().__init__()
        self.writing = threading.Event()
        self.before_answer: Callable[[], object] = lambda: None

    def write(self, writes: Sequence[StatusWrite]) -> None:
        assert self.writing.wait(30)
        super().write(writes)

    def read(self, ids: Sequence[str]) -> list[Status | None]:
        found = super().read(ids)
        self.before_answer()
        return found


def states(statuses: list[Status | None]) -> list[str | None]:
    return [None if one is None else one.state.value for one in statuses]


def test_what_a_client_has_still_to_write_stands_for_it() -> None:
    store = HeldStore()
    with Client(FakeProducer(), store, "requests", hints=False) as client:
        ids = [client.submit("t", number) for number in range(3)]
        client.flush()
        wanted = [ids[0], "of another", *ids[1:], ids[0]]
        expected = ["accepted", None, "accepted", "accepted", "accepted"]
        assert states(client.statuses(wanted)) == expected
        store.available = False
        with pytest.raises(StoreUnavailable):
            client.status(ids[0])
        store.available = True
        store.writing.set()
        eventually(lambda: not client._sender.stats().queued)
        assert states(client.statuses(wanted)) == expected
        store.forget()
        assert states(client.statuses(wanted)) == [None] * 5


def test_what_is_written_just_after_the_store_was_asked_is_found() -> None:
    store = HeldStore()
    with Client(FakeProducer(), store, "requests", hints=False) as client:
        request_id = client.submit("t", 1)
        client.flush()

        def write() -> None:
            store.writing.set()
            eventually(lambda: not client._sender.stats().queued)

        store.before_answer = write
        assert states([client.status(request_id)]) == ["accepted"]


def test_who_sees_that_it_is_taken_finds_it_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    producer, store, seen = FakeProducer(), HeldStore(), []
    with Client(producer, store, "requests", hints=False) as client:
        put = client._sender.put

        def looked(writes: Sequence[StatusWrite]) -> None:
            submission = client._submissions.get("a")
            assert submission is not None
            seen.append((submission.delivered, client.status("a")))
            put(writes)

        monkeypatch.setattr(client._sender, "put", looked)
        producer.confirming.clear()
        client.submit("t", 1, request_id="a")
        producer.confirming.set()
        client.flush()
        assert seen == [(False, None)]
        assert states([client.status("a")]) == ["accepted"]
        store.writing.set()


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_the_result_of_an_earlier_run_is_not_kept(kind: type[Client | AsyncClient]) -> None:
    store, producer = MemoryStatusStore(), FakeProducer()
    AnsweringConsumer(store, producer).say("a", State.DONE, result=b'"' + b"x" * 10**6 + b'"')

    async def sent() -> bytes:
        client = kind(producer, store, "requests", hints=False)
        sending = client.submit("t", 1, request_id="a")
        if not isinstance(sending, str):
            await sending
        submission = client._submissions.get("a")
        assert submission is not None
        assert submission.before is not None
        closing = client.close()
        if closing is not None:
            await closing
        return pickle.dumps(submission)

    assert len(asyncio.run(sent())) < 2_000
