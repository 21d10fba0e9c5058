"""Answers that an outbox can't take: they keep no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import orjson
import psycopg
import pytest

from feedback import outbox
from feedback.contract.states import State
from feedback.outbox.checks import problems
from feedback.outbox.migrations import migrate
from feedback.outbox.relay import Relay, Route
from feedback.outbox.relay.database import Bounds
from feedback.postgres import open_connection
from feedback.status.status import StatusWrite
from stack import Stack
from tests.support.asked import Asked
from tests.support.outbox import Outbox
from tests.support.own_database import OwnDatabase
from tests.support.waiting import eventually


@pytest.fixture
def latin(stack: Stack, outbox_: Outbox) -> Iterator[Outbox]:
    """An outbox in a database that has no room for most characters."""
    with OwnDatabase(stack.database, "LATIN1") as made:
        url = f"{made.url}?client_encoding=utf8"
        with psycopg.connect(url) as connection:
            migrate(connection, outbox_.schema, [])
        inside = Outbox(url, outbox_.schema)
        yield inside
        inside.connection.close()


def test_an_answer_that_the_database_has_no_characters_for_keeps_no_other(
    latin: Outbox, caplog: pytest.LogCaptureFixture
) -> None:
    asked = Asked(latin, "a", "result", "b", "error", "code", "c", "again")
    asked.status("result", State.DONE, result='"5 €"'.encode())
    asked.status("error", State.REJECTED, "no_funds", error="5 €")
    asked.status("code", State.REJECTED, "kein_€")
    for id_ in "abc":
        asked.status(id_, State.DONE, result=b'"\xc3\xa9"')
    latin.run("UPDATE :schema.requests SET next_at = now() WHERE id = 'again'")
    asked.settle()
    found = asked.rows()
    assert {id_: found[id_]["result"] for id_ in "abc"} == dict.fromkeys("abc", "é")
    assert [found[id_]["state"] for id_ in ("result", "error", "code", "again")] == [
        "done", "rejected", "rejected", "unsent",
    ]  # fmt: skip
    assert found["result"]["result"] is None
    assert "LATIN1" in found["result"]["error"]
    assert "LATIN1" in found["error"]["error"]
    assert "its error: 5 \\u20ac" in found["error"]["error"]
    assert found["code"]["code"] == "kein_\\u20ac"
    ended = {"a", "b", "c", "code", "error", "result"}
    assert set(asked.notified()) == ended
    assert {one.id: one.result for one in asked.told} == {
        id_: "é" if len(id_) == 1 else None for id_ in ended
    }
    assert len(latin.rows("SELECT FROM :schema.inbox")) == 6
    assert caplog.text.count("can't be kept") == 1, "a line a minute"
    with psycopg.connect(latin.url) as connection:
        [problem] = problems(connection, latin.schema)
    assert (problem.wrong, "LATIN1" in problem.text) == (False, True)


def test_of_a_database_that_takes_any_bytes_it_is_said_what_they_stop(stack: Stack) -> None:
    with (
        OwnDatabase(stack.database, "SQL_ASCII") as made,
        open_connection(made.url, "") as connection,
    ):
        migrate(connection, "oncepool_outbox", [])
        [problem] = problems(connection, "oncepool_outbox")
    assert (problem.wrong, "stops its sender" in problem.text) == (False, True)


def test_a_row_that_can_not_be_read_keeps_those_of_a_few_shards_at_most(
    stack: Stack, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection that was lost with it goes on where that has been."""
    monkeypatch.setenv("ONCEPOOL_OUTBOX_SCHEMA", "oncepool_outbox")
    with OwnDatabase(stack.database, "SQL_ASCII") as made:
        with open_connection(made.url, "") as connection:
            migrate(connection, "oncepool_outbox", [])
            outbox.add_many(connection, [("t", n, {}) for n in range(200)])
        box = Outbox(made.url, "oncepool_outbox")
        box.run("UPDATE :schema.requests SET type = E'\\xff' WHERE shard = 0")
        kept = "SELECT DISTINCT shard FROM :schema.requests WHERE state = 'unsent'"
        assert len(box.rows(kept)) > 2 * Bounds().shards
        assert box.rows("SELECT FROM :schema.requests WHERE shard = 0")
        route = Route(topic(), {"bootstrap.servers": stack.kafka})
        with Relay(made.url, {"default": route}, schema="oncepool_outbox"):
            eventually(lambda: len(box.rows(kept)) <= Bounds().shards, 60)
        box.connection.close()


def test_an_answer_that_the_inbox_refuses_keeps_no_other(outbox_: Outbox) -> None:
    """As by a trigger of the producer's; and it ends once the inbox takes it."""
    asked = Asked(outbox_, "a", "b", "c")
    for id_ in "abc":
        asked.status(id_, State.DONE)
    outbox_.run("ALTER TABLE :schema.inbox ADD CONSTRAINT odd CHECK (id <> 'b')")
    asked.settle()
    assert {id_: row["state"] for id_, row in asked.rows().items()} == {
        "a": "done", "b": "sent", "c": "done",
    }  # fmt: skip
    outbox_.run("ALTER TABLE :schema.inbox DROP CONSTRAINT odd")
    asked.settle()
    assert asked.rows()["b"]["state"] == "done"


def test_a_status_that_is_malformed_is_passed_over(
    outbox_: Outbox, caplog: pytest.LogCaptureFixture
) -> None:
    asked = Asked(outbox_, "a", "b", "c", "d")
    for id_ in "abcd":
        asked.status(id_, State.REJECTED, "no")
    for id_, odd in (("b", {"code": None}), ("c", {"at": "2030-01-01T00:00:00"})):
        [value] = asked.store.read_raw([id_])
        written = orjson.dumps(orjson.loads(value or b"") | odd)
        asked.store.write([StatusWrite(id_, written, 60, final=True)])
    asked.settle()
    found = {id_: row["state"] for id_, row in asked.rows().items()}
    assert found == {"a": "rejected", "b": "sent", "c": "sent", "d": "rejected"}
    assert caplog.text.count("statuses left out") == 1
