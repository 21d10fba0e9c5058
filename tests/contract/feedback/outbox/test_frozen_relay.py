"""A relay that is frozen in the middle of a transaction: others go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

import psycopg
import pytest

from feedback.contract.states import State
from feedback.outbox.relay import transactions
from feedback.outbox.relay.loop import AnswerLoop
from feedback.outbox.relay.settling import Settling
from feedback.status.memory_store import MemoryStatusStore
from tests.support import eventually
from tests.support.asked import POLICY, Asked
from tests.support.outbox import Outbox
from tests.support.pooler import Pooler

MANY = 20
"""Connections of a proxy: as it gives each of them in turn, no transaction is on the one on which
its client's session began."""
SHOWN = "SHOW idle_in_transaction_session_timeout"


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
def reading(outbox_: Outbox, store: MemoryStatusStore, url: str = "") -> Iterator[None]:
    settling = Settling(outbox_.schema, "default", store, POLICY, inbox=False, settled=None)
    reader = AnswerLoop(url or outbox_.url, "default", store, settling)
    reader.start()
    try:
        yield
    finally:
        reader.stop()
        assert reader.join(60)


def taken_over_from(outbox_: Outbox, url: str) -> None:
    """One that has come there by `url` is frozen."""
    asked = Asked(outbox_, "a")
    asked.status("a", State.DONE)
    freezing = Freezing()
    with reading(outbox_, freezing, url):
        try:
            assert freezing.frozen.wait(60)
            with reading(outbox_, asked.store):
                eventually(lambda: asked.rows()["a"]["state"] == "done")
        finally:
            freezing.thawed.set()


def test_another_takes_the_answers_over(outbox_: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "IDLE", 1.0)
    taken_over_from(outbox_, outbox_.url)


def test_another_takes_over_from_one_behind_a_proxy_that_pools_transactions(
    outbox_: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose other clients have transactions that stand idle for as long as they like."""
    monkeypatch.setattr(transactions, "IDLE", 1.0)
    with closing(Pooler(outbox_.url, MANY)) as pooler:
        user, at, _ = urlsplit(outbox_.url).netloc.rpartition("@")
        netloc = f"{user}{at}127.0.0.1:{pooler.port}"
        url = urlsplit(outbox_.url)._replace(netloc=netloc).geturl()
        taken_over_from(outbox_, url)
        with psycopg.connect(url, autocommit=True, prepare_threshold=None) as other:
            shown = [other.execute(SHOWN).fetchone() for _ in range(2 * MANY)]
    assert set(shown) == {("0",)}
