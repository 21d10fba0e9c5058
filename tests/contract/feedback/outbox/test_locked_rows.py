"""Rows that another transaction has locked: nothing but them, and what is behind them, waits."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from feedback import outbox
from feedback.client.result import Result
from feedback.contract.states import State
from feedback.outbox.relay import Relay, Route, batch, loop, transactions
from feedback.postgres import Connection, open_connection
from feedback.status.redis_store import RedisStatusStore
from feedback.status.status import StatusFields, StatusWrite
from stack import Stack
from tests.support.asked import Asked
from tests.support.outbox import Outbox
from tests.support.topic_reader import ids
from tests.support.waiting import eventually

MANY = 200


def add(outbox_: Outbox, *wanted: str, key: str | None = None) -> None:
    with psycopg.connect(outbox_.url) as connection:
        outbox.add_many(connection, [("t", {}, {"request_id": id_, "key": key}) for id_ in wanted])


def states(outbox_: Outbox) -> dict[str, str]:
    return {row["id"]: row["state"] for row in outbox_.rows()}


def are_sent(outbox_: Outbox, *wanted: str) -> bool:
    found = states(outbox_)
    return all(found[id_] == "sent" for id_ in wanted)


@contextmanager
def locked(outbox_: Outbox, *wanted: str, how: str = "UPDATE") -> Iterator[psycopg.Connection[Any]]:
    """An idle session has them, as a terminal that somebody has left open."""
    with psycopg.connect(outbox_.url) as other:
        text = outbox_.sql(f"SELECT FROM :schema.requests WHERE id = ANY(%s) FOR {how}")
        assert other.execute(text.encode(), [list(wanted)]).rowcount == len(wanted)
        yield other
        other.rollback()


class Waits:
    """Who waits for a lock of a table: each of a relay's connections has a process of its own."""

    def __init__(self, outbox_: Outbox, table: str, mode: str) -> None:
        self._outbox = outbox_
        self._which = f"relation = ':schema.{table}'::regclass AND mode = '{mode}' AND NOT granted"
        self._seen: set[int] = set()

    def have_been(self, number: int) -> bool:
        """Whether so many were seen so far."""
        found = self._outbox.rows(f"SELECT pid FROM pg_locks WHERE {self._which}")
        self._seen.update(row["pid"] for row in found)
        return len(self._seen) >= number


@pytest.fixture
def relayed(stack: Stack, outbox_: Outbox) -> Iterator[Callable[..., Relay]]:
    with ExitStack() as opened:

        def start(topic: str, url: str = outbox_.url, **given: Any) -> Relay:
            route = Route(topic, {"bootstrap.servers": stack.kafka}, **given)
            relay = Relay(url, {"default": route}, schema=outbox_.schema)
            return opened.enter_context(relay)

        yield start


@pytest.mark.parametrize("relays", [1, 2])
def test_a_locked_row_keeps_no_other_from_being_sent_once(
    stack: Stack,
    outbox_: Outbox,
    topic: Callable[..., str],
    relayed: Callable[..., Relay],
    relays: int,
) -> None:
    name = topic()
    others = [f"r{n}" for n in range(MANY)]
    add(outbox_, "locked", *others)
    with locked(outbox_, "locked"):
        running = [relayed(name) for _ in range(relays)]
        eventually(lambda: are_sent(outbox_, *others), 60)
        later = [f"later{n}" for n in range(MANY)]  # of all shards: it is passed by again
        add(outbox_, *later)
        eventually(lambda: are_sent(outbox_, *later), 60)
        assert states(outbox_)["locked"] == "unsent"
        assert all(relay.states()[0].database is None for relay in running)
    eventually(lambda: are_sent(outbox_, "locked"), 60)
    assert all(relay.close() for relay in running)
    assert Counter(ids(stack, name)) == Counter(["locked", *others, *later])


def test_it_holds_back_those_of_its_key_behind_it_and_no_others(
    stack: Stack,
    outbox_: Outbox,
    topic: Callable[..., str],
    relayed: Callable[..., Relay],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many: those of other keys in their shard go, and so does what is ahead of it."""
    monkeypatch.setattr(batch, "LOCK_PAUSE", 0.2)
    name = topic()
    behind = [f"behind{n}" for n in range(MANY)]
    add(outbox_, "ahead", "locked", *behind, key="k")
    others = [f"other{n}" for n in range(MANY)]
    add(outbox_, *others)
    outbox_.run("UPDATE :schema.requests SET shard = 0")
    with locked(outbox_, "locked"):
        relay = relayed(name)
        eventually(lambda: are_sent(outbox_, "ahead", *others), 60)
        add(outbox_, "later")  # after another look at the key that waits
        eventually(lambda: are_sent(outbox_, "later"), 60)
        assert {states(outbox_)[id_] for id_ in ("locked", *behind)} == {"unsent"}
    eventually(lambda: are_sent(outbox_, "locked", *behind), 60)
    assert relay.close()
    found = ids(stack, name)
    assert Counter(found) == Counter(["ahead", "locked", *behind, *others, "later"])
    of_the_key = ["ahead", "locked", *behind]
    assert [id_ for id_ in found if id_ in of_the_key] == of_the_key


def test_nothing_is_sent_before_the_tables_lock_is_there_that_marks_need(
    stack: Stack,
    outbox_: Outbox,
    topic: Callable[..., str],
    relayed: Callable[..., Relay],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An ALTER TABLE waits for a producer's long transaction, and all others behind it."""
    monkeypatch.setattr(transactions, "STATEMENT", 1.0)
    name = topic()
    many = [f"r{n}" for n in range(MANY)]
    add(outbox_, *many)
    alter = outbox_.sql("ALTER TABLE :schema.requests DISABLE TRIGGER requests_added").encode()
    with psycopg.connect(outbox_.url) as job, psycopg.connect(outbox_.url) as ddl:
        outbox.add(job, "t", {}, request_id="of a long job")
        altering = threading.Thread(target=lambda: (ddl.execute(alter), ddl.commit()))
        altering.start()
        queued = Waits(outbox_, "requests", "ShareRowExclusiveLock")
        eventually(lambda: queued.have_been(1), 60)
        relay = relayed(name)
        tries = Waits(outbox_, "requests", "RowExclusiveLock")
        eventually(lambda: tries.have_been(3), 60)
        job.commit()
        altering.join(60)
    eventually(lambda: are_sent(outbox_, *many, "of a long job"), 60)
    assert relay.close()
    assert Counter(ids(stack, name)) == Counter([*many, "of a long job"])


@pytest.fixture
def answered(stack: Stack, outbox_: Outbox, prefix: str) -> Iterator[Callable[[str], None]]:
    """Says of a row that it is done."""
    store = RedisStatusStore(stack.redis, prefix, timeout=5.0)

    def say(id_: str) -> None:
        [row] = [row for row in outbox_.rows() if row["id"] == id_]
        done = StatusFields(
            id_, "t", State.DONE, 1, "ok", 1, datetime.now(UTC), row["fingerprint"], b"1"
        )
        store.write([StatusWrite.of(done, final=True)])

    yield say
    store.close()


@pytest.mark.parametrize("how", ["UPDATE", "KEY SHARE"])
def test_a_locked_row_keeps_no_other_from_its_end(
    stack: Stack,
    outbox_: Outbox,
    topic: Callable[..., str],
    prefix: str,
    relayed: Callable[..., Relay],
    answered: Callable[[str], None],
    caplog: pytest.LogCaptureFixture,
    how: str,
) -> None:
    """Also where a row of another table only names it, in a transaction that is open."""
    others = [f"r{n}" for n in range(20)]
    add(outbox_, *others[:10], "locked", *others[10:])
    relay = relayed(topic(), redis=stack.redis, redis_prefix=prefix)
    eventually(lambda: are_sent(outbox_, "locked", *others), 60)
    with locked(outbox_, "locked", how=how):
        for id_ in ("locked", *others):
            answered(id_)
        eventually(lambda: states(outbox_) == {"locked": "sent"}, 60)
        add(outbox_, "later")
        eventually(lambda: are_sent(outbox_, "later"), 60)
        answered("later")
        eventually(lambda: states(outbox_) == {"locked": "sent"}, 60)
        assert [state.database for state in relay.states()] == [None, None]
        assert "another transaction has locked: they wait for its end, last that of locked" in (
            caplog.text
        )
    eventually(lambda: not outbox_.rows(), 60)


def test_a_record_of_a_locked_row_is_kept_and_keeps_no_other(outbox_: Outbox) -> None:
    asked = Asked(outbox_, "a", "locked", "b")
    now = datetime.now(UTC)
    told = [Result(id_, "t", State.DONE, "ok", None, now) for id_ in ("a", "locked", "b")]
    with locked(outbox_, "locked"):
        asked.connection.execute("SET statement_timeout = '5s'")
        left = asked.settling.records(asked.connection, told)
        assert [key.id for key in left] == ["locked"]
        assert asked.settling.locked == {*left}
        assert {id_: row["state"] for id_, row in asked.rows().items()} == {
            "a": "done", "locked": "sent", "b": "done"
        }  # fmt: skip
    assert asked.settling.records(asked.connection, told) == []
    assert asked.settling.locked == set()
    assert asked.rows()["locked"]["state"] == "done"


def test_the_outbox_counts_as_away_until_an_end_is_written(
    stack: Stack,
    outbox_: Outbox,
    topic: Callable[..., str],
    prefix: str,
    relayed: Callable[..., Relay],
    answered: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It connects and looks in between, which answers nobody."""
    monkeypatch.setattr(transactions, "STATEMENT", 1.0)
    add(outbox_, "a")
    relay = relayed(topic(), redis=stack.redis, redis_prefix=prefix)
    eventually(lambda: are_sent(outbox_, "a"), 60)
    [answers] = [loop for loop in relay._loops if not loop.state.sends]
    with psycopg.connect(outbox_.url) as other:
        other.execute(outbox_.sql("LOCK TABLE :schema.inbox IN EXCLUSIVE MODE").encode())
        answered("a")
        eventually(lambda: answers.state.database is not None, 60)
        tries, found = Waits(outbox_, "inbox", "RowExclusiveLock"), set[bool]()

        def has_tried() -> bool:
            found.add(answers.state.database is not None)
            return tries.have_been(3)

        eventually(has_tried, 60)
        assert found == {True}
    eventually(lambda: answers.state.database is None, 60)
    assert not outbox_.rows()


FULL = """
CREATE FUNCTION :schema.full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
END
$$;
CREATE TRIGGER full_disk BEFORE UPDATE ON :schema.requests
    FOR EACH ROW EXECUTE FUNCTION :schema.full_disk()
"""


@pytest.mark.long
def test_what_can_not_be_marked_is_sent_once_more_at_most(
    stack: Stack,
    outbox_: Outbox,
    topic: Callable[..., str],
    relayed: Callable[..., Relay],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However often it is tried, as by a database that can be read and has no room."""
    name = topic()
    many = [f"r{n}" for n in range(MANY)]
    add(outbox_, *many)
    outbox_.run(FULL)
    opened: list[str] = []

    def open_counted(url: str, what: str) -> Connection:
        opened.append(what)
        return open_connection(url, what)

    monkeypatch.setattr(loop, "open_connection", open_counted)
    relay = relayed(name)
    eventually(lambda: len(opened) > 4, 60)
    assert relay.states()[0].database is not None
    outbox_.run("DROP TRIGGER full_disk ON :schema.requests")
    eventually(lambda: are_sent(outbox_, *many), 60)
    assert relay.close()
    found = Counter(ids(stack, name))
    assert set(found) == {*many}
    assert max(found.values()) <= 2
