"""Passes over what waits for answers, while others write answers, too."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import psycopg
import pytest

from feedback.client.result import Result
from feedback.contract.states import State
from feedback.outbox.relay import settling
from feedback.outbox.relay.settling import Settling
from feedback.postgres import open_connection
from feedback.status.redis_store import RedisStatusStore
from stack import Stack
from tests.support import eventually
from tests.support.asked import POLICY, Asked, reading
from tests.support.outbox import Outbox

LAST = "f"


@pytest.fixture
def asked(outbox_: Outbox, stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    """Three pages, of which only the last row has an answer."""
    monkeypatch.setattr(settling, "PAGE", 2)
    store = RedisStatusStore(stack.redis, outbox_.schema)
    asked = Asked(outbox_, *"abcde", LAST, store=store)
    outbox_.run("UPDATE :schema.requests SET sent_at = now() - interval '1 h'")
    asked.status(LAST, State.DONE)
    yield asked
    asked.connection.close()
    store.close()


def take_records(outbox_: Outbox, over: threading.Event) -> None:
    """As under load, with one record after the other: of requests that are not this outbox's."""
    record = Result("theirs", "t", State.DONE, "ok", None, datetime.now(UTC))
    own = Settling(outbox_.schema, "default", None, POLICY, inbox=False)
    with open_connection(outbox_.url, "oncepool relay") as connection:
        while not over.is_set():
            own.records(connection, [record])


@contextmanager
def records_all_the_time(outbox_: Outbox) -> Iterator[None]:
    """Of three relays: there is always one that waits for another."""
    over = threading.Event()
    threads = [threading.Thread(target=take_records, args=(outbox_, over)) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(30)


def test_a_pass_comes_to_its_end_while_records_are_written_all_the_time(
    asked: Asked, outbox_: Outbox
) -> None:
    answers = reading(asked.settling, asked.store, outbox_.url)
    with records_all_the_time(outbox_), answers:
        eventually(lambda: asked.settling.ended == 1)
    assert asked.rows()[LAST]["state"] == "done"


def test_a_pass_goes_on_where_others_have_kept_it_waiting_for_too_long(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "LOCK", 0.1)
    assert asked.settling.page(asked.connection)
    with psycopg.connect(asked.outbox.url) as other:
        other.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [asked.settling._lock]
        )
        for _ in range(2):
            with pytest.raises(settling.AnswersBusy):
                asked.settling.page(asked.connection)
    assert asked.settling.page(asked.connection)
    assert asked.settling.ended == 0
    assert asked.settling.page(asked.connection)
    assert asked.settling.ended == 1


def test_whoever_has_waited_in_vain_waits_for_longer(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who leaves a queue that is longer than the wait never comes to its head."""
    monkeypatch.setattr(settling, "LOCK", 0.1)
    own = Settling(asked.outbox.schema, "default", asked.store, POLICY, inbox=False)
    with psycopg.connect(asked.outbox.url) as other:
        other.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [own._lock])
        for _ in range(3):
            with pytest.raises(settling.AnswersBusy):
                own.page(asked.connection)
        assert own._patience == 8 * 0.1
    assert own.page(asked.connection)
    assert own._patience == 0.1


def test_a_pass_ends_though_more_is_sent_all_the_time(asked: Asked) -> None:
    """What waits for its answer for longest would never be looked at again."""
    pages = 0
    for pages in range(1, 20):
        more = asked.settling.page(asked.connection)
        if not more:
            break
        asked.add(*(f"{pages}-{n}" for n in range(settling.PAGE)))
        asked.send()
    assert pages == 4
    assert asked.settling.ended == 1


def test_what_was_sent_during_a_long_pass_is_the_next_ones(asked: Asked) -> None:
    """Which looks at young rows alone, and goes back to where that pass began."""
    assert asked.settling.page(asked.connection)
    asked.add("late")
    asked.send("late")
    asked.status("late", State.DONE)
    while asked.settling.page(asked.connection):
        pass
    assert asked.settling.ended == 1
    while asked.settling.page(asked.connection, young=0.0):
        pass
    assert asked.settling.ended == 2


def test_what_a_clock_has_sent_in_the_future_is_looked_at(asked: Asked) -> None:
    asked.outbox.run("UPDATE :schema.requests SET sent_at = 'infinity' WHERE id = 'f'")
    while asked.settling.page(asked.connection):
        pass
    assert asked.settling.ended == 1
