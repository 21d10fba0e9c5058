"""A relay that is frozen in the middle of a transaction: others go on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer

from feedback import outbox
from feedback.contract.states import State
from feedback.outbox.relay import transactions
from feedback.outbox.relay.answers import AnswerPolicy
from feedback.outbox.relay.batch import ClaimedRow, RowRefusal
from feedback.outbox.relay.kafka import TopicSender
from feedback.outbox.relay.loop import SenderLoop
from feedback.outbox.relay.settling import Settling
from feedback.status.memory_store import MemoryStatusStore
from feedback.status.store import StatusStore
from stack import Stack
from tests.support import eventually
from tests.support.asked import POLICY, Asked, reading
from tests.support.outbox import Outbox
from tests.support.pooler import Pooler
from tests.support.topic_reader import ids

MANY = 20
"""Connections of a proxy: as it gives each of them in turn, no transaction is on the one on which
its client's session began."""


class Freezing(MemoryStatusStore):
    """Who reads stands still, with what it has locked."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen, self.thawed = threading.Event(), threading.Event()

    def read_raw(self, ids: Sequence[str]) -> list[bytes | None]:
        self.frozen.set()
        assert self.thawed.wait(60)
        return super().read_raw(ids)


def one_more(outbox_: Outbox, store: StatusStore, url: str = "") -> AbstractContextManager[None]:
    settling = Settling(outbox_.schema, "default", store, POLICY, inbox=False)
    return reading(settling, store, url or outbox_.url)


def taken_over_from(outbox_: Outbox, url: str) -> None:
    """One that has come there by `url` is frozen."""
    asked = Asked(outbox_, "a")
    asked.status("a", State.DONE)
    freezing = Freezing()
    with one_more(outbox_, freezing, url):
        try:
            assert freezing.frozen.wait(60)
            with one_more(outbox_, asked.store):
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
        taken_over_from(outbox_, pooler.url)
        for setting in ("idle_in_transaction_session_timeout", "statement_timeout"):
            assert pooler.shown(setting) == {"0"}


class Frozen:
    """Stands still where it is called first, until its rows are not its own any more, and gone."""

    def __init__(self, outbox_: Outbox) -> None:
        self._outbox = outbox_
        self.over = threading.Event()

    def __call__(self) -> None:
        if self.over.is_set():
            return
        unlocked = "SELECT FROM :schema.shards FOR UPDATE SKIP LOCKED"
        every = len(self._outbox.rows("SELECT FROM :schema.shards"))
        eventually(lambda: len(self._outbox.rows(unlocked)) == every)
        self._outbox.run("DELETE FROM :schema.requests")  # as an operator drops them
        self.over.set()


class FrozenSender(TopicSender):
    """Freezes once its rows are claimed."""

    frozen: Frozen

    def check(self, row: ClaimedRow) -> RowRefusal | None:
        self.frozen()
        return super().check(row)


def frozen_producer(frozen: Frozen) -> Callable[..., Any]:
    """Makes producers that freeze once they have taken their first message."""

    class FrozenProducer(Producer):
        def produce(self, *args: Any, **message: Any) -> None:
            super().produce(*args, **message)
            frozen()

    return FrozenProducer


def add(outbox_: Outbox, *wanted: str) -> None:
    with psycopg.connect(outbox_.url) as connection:
        outbox.add_many(connection, [("t", {}, {"request_id": id_, "key": "k"}) for id_ in wanted])


def sends_after(outbox_: Outbox, stack: Stack, topic: str, sender: TopicSender) -> list[str]:
    """What stands in the topic once a relay has gone on after its freeze, and sent one more row."""
    add(outbox_, "first", "second")
    relay = SenderLoop(
        outbox_.url, outbox_.schema, "default", sender, bounds=None, policy=AnswerPolicy()
    )
    relay.start()
    try:
        eventually(lambda: not outbox_.rows())
        add(outbox_, "later")
        eventually(lambda: [row["state"] for row in outbox_.rows()] == ["sent"])
    finally:
        relay.stop()
        assert relay.join(60)
    return ids(stack, topic)


def test_rows_that_were_lost_in_a_freeze_are_not_sent(
    outbox_: Outbox, stack: Stack, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "IDLE", 3.0)
    name = topic()
    sender = FrozenSender(name, {"bootstrap.servers": stack.kafka})
    sender.frozen = Frozen(outbox_)
    assert set(sends_after(outbox_, stack, name, sender)) == {"later"}


def test_nor_those_that_the_producer_had_not_taken_yet(
    outbox_: Outbox, stack: Stack, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "IDLE", 3.0)
    name, frozen = topic(), Frozen(outbox_)
    properties = {"bootstrap.servers": stack.kafka}
    sender = TopicSender(name, properties, connect=frozen_producer(frozen))
    assert set(sends_after(outbox_, stack, name, sender)) <= {"first", "later"}
