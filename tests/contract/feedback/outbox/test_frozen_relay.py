"""A relay that is frozen in the middle of a transaction: others go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from feedback.contract.states import State
from feedback.outbox.relay import loop
from feedback.outbox.relay.loop import AnswerLoop
from feedback.outbox.relay.settling import Settling
from feedback.status.memory_store import MemoryStatusStore
from tests.support import eventually
from tests.support.asked import POLICY, Asked
from tests.support.outbox import Outbox


class Freezing(MemoryStatusStore):
    """Who reads stands still, with what it has locked."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen, self.thawed = threading.Event(), threading.Event()

    def read_raw(self, ids: Sequence[str]) -> list[bytes | None]:
        self.frozen.set()
        assert self.thawed.wait(60)
        return super().read_raw(ids)


@contextmanager
def reading(outbox_: Outbox, store: MemoryStatusStore) -> Iterator[None]:
    settling = Settling(outbox_.schema, "default", store, POLICY, inbox=False, settled=None)
    reader = AnswerLoop(outbox_.url, "default", store, settling)
    reader.start()
    try:
        yield
    finally:
        reader.stop()
        assert reader.join(60)


def test_another_takes_the_answers_over(outbox_: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_IDLE", 1.0)
    asked = Asked(outbox_, "a")
    asked.status("a", State.DONE)
    freezing = Freezing()
    with reading(outbox_, freezing):
        try:
            assert freezing.frozen.wait(60)
            with reading(outbox_, asked.store):
                eventually(lambda: asked.rows()["a"]["state"] == "done")
        finally:
            freezing.thawed.set()
