"""Users who have what docs/producers.md says that they need, and no more."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import orjson
import psycopg
import pytest
from confluent_kafka import Producer

from feedback import outbox
from feedback.outbox.checks import problems
from feedback.outbox.migrations import migrate
from feedback.outbox.relay import Relay, Route, loop
from feedback.postgres import Connection, open_connection
from stack import Stack
from tests.support.outbox import Outbox
from tests.support.own_database import OwnDatabase
from tests.support.relay_process import RelayProcess
from tests.support.topic_reader import ids
from tests.support.waiting import eventually

SCHEMA = "oncepool_outbox"
RELAY = """
GRANT USAGE ON SCHEMA oncepool_outbox TO {0};
GRANT SELECT, INSERT, UPDATE ON oncepool_outbox.shards TO {0};
GRANT SELECT, UPDATE, DELETE ON oncepool_outbox.requests TO {0};
GRANT SELECT, INSERT ON oncepool_outbox.finished, oncepool_outbox.inbox TO {0};
"""
PROGRAM = """
GRANT USAGE ON SCHEMA oncepool_outbox TO {0};
GRANT SELECT ON oncepool_outbox.finished, oncepool_outbox.senders TO {0};
GRANT SELECT, INSERT, DELETE ON oncepool_outbox.requests TO {0};
"""


class Place(NamedTuple):
    """A database with an outbox, and users of it."""

    url: str
    relay: str
    program: str

    def of(self, user: str) -> str:
        """Its URL for a user."""
        return f"{self.url}{'&' if '?' in self.url else '?'}options=-c%20role%3D{user}"


@pytest.fixture
def place(own_database: OwnDatabase, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("ONCEPOOL_OUTBOX_SCHEMA", SCHEMA)
    name = uuid.uuid4().hex[:8]
    made = Place(own_database.url, f"relay_{name}", f"program_{name}")
    with psycopg.connect(made.url, autocommit=True) as connection:
        migrate(connection, SCHEMA, [])
        for user, grants in ((made.relay, RELAY), (made.program, PROGRAM)):
            connection.execute(f"CREATE ROLE {user}".encode())
            connection.execute(grants.format(user).encode())
    yield made
    with psycopg.connect(made.url, autocommit=True) as connection:
        for user in (made.relay, made.program):
            connection.execute(f"DROP OWNED BY {user}; DROP ROLE {user}".encode())


def test_a_relay_sends_with_no_more_than_it_needs(
    place: Place, stack: Stack, topic: Callable[..., str], prefix: str, tmp_path: Path
) -> None:
    with psycopg.connect(place.of(place.program)) as connection:
        outbox.add(connection, "t", {}, request_id="a")
    environment = {
        "ONCEPOOL_OUTBOX_DATABASE_URL": place.of(place.relay),
        "ONCEPOOL_OUTBOX_SCHEMA": SCHEMA,
        "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": stack.kafka,
        "ONCEPOOL_KAFKA_TOPIC": topic(),
        "ONCEPOOL_REDIS_URL": stack.redis,
        "ONCEPOOL_REDIS_PREFIX": prefix,
    }
    box = Outbox(place.url, SCHEMA)
    with RelayProcess(environment, tmp_path / "log") as relay:

        def is_sent() -> bool:
            assert relay.process.poll() is None, relay.log
            return bool(box.rows()[0]["state"] == "sent")

        eventually(is_sent, 60, lambda: relay.log)
    box.connection.close()


def test_the_check_finds_nothing_wrong_and_says_what_it_has_not_looked_at(place: Place) -> None:
    for user, unlooked in ((place.relay, ["schema_version", "senders"]),
                           (place.program, ["schema_version"])):  # fmt: skip
        with psycopg.connect(place.of(user)) as connection:
            found = problems(connection, SCHEMA)
        assert not any(problem.wrong for problem in found)
        assert [name for name in unlooked if f".{name} can't be read" in str(found)] == unlooked
        assert len(found) == len(unlooked)


@pytest.mark.parametrize(
    "taken,named",
    [
        ("USAGE ON SCHEMA oncepool_outbox", "schema oncepool_outbox can't be used"),
        ("SELECT ON oncepool_outbox.requests", "oncepool_outbox.requests can't be read"),
        ("UPDATE ON oncepool_outbox.requests", "lacks UPDATE on oncepool_outbox.requests"),
        ("DELETE ON oncepool_outbox.requests", "lacks DELETE on oncepool_outbox.requests"),
        ("UPDATE ON oncepool_outbox.shards", "lacks UPDATE on oncepool_outbox.shards"),
        ("INSERT ON oncepool_outbox.finished", "lacks INSERT on oncepool_outbox.finished"),
    ],
)
def test_the_check_names_what_a_user_lacks(place: Place, taken: str, named: str) -> None:
    with psycopg.connect(place.url, autocommit=True) as connection:
        connection.execute(f"REVOKE {taken} FROM {place.relay}".encode())
    with psycopg.connect(place.of(place.relay)) as connection:
        found = problems(connection, SCHEMA)
    assert [named in problem.text for problem in found if problem.wrong] == [True]


def test_a_relay_that_may_not_do_its_work_does_not_begin(
    place: Place, stack: Stack, topic: Callable[..., str], tmp_path: Path
) -> None:
    """Its user is one that may only add requests."""
    environment = {
        "ONCEPOOL_OUTBOX_DATABASE_URL": place.of(place.program),
        "ONCEPOOL_OUTBOX_SCHEMA": SCHEMA,
        "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": stack.kafka,
        "ONCEPOOL_KAFKA_TOPIC": topic(),
    }
    with RelayProcess(environment, tmp_path / "log") as relay:
        assert relay.process.wait(60) == 1
        assert "lacks UPDATE on oncepool_outbox.requests" in relay.log


@pytest.mark.parametrize(
    "left",
    [pytest.param("", marks=pytest.mark.long), "GRANT UPDATE (state) ON :schema.requests TO {0}"],
)
def test_a_relay_that_loses_a_privilege_sends_nothing_that_it_could_not_mark(
    place: Place,
    stack: Stack,
    topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    left: str,
) -> None:
    """And goes on once it has it again."""
    name = topic()
    wanted = [f"r{n}" for n in range(100)]
    opened: list[str] = []

    def open_counted(url: str, name: str) -> Connection:
        opened.append(name)
        return open_connection(url, name)

    monkeypatch.setattr(loop, "open_connection", open_counted)
    box = Outbox(place.url, SCHEMA)
    route = Route(name, {"bootstrap.servers": stack.kafka})
    with Relay(place.of(place.relay), {"default": route}, schema=SCHEMA) as relay:
        eventually(lambda: relay.states()[0].database is None, 60)
        box.run(f"REVOKE UPDATE ON :schema.requests FROM {place.relay};" + left.format(place.relay))
        with psycopg.connect(place.of(place.program)) as connection:
            outbox.add_many(connection, [("t", {}, {"request_id": id_}) for id_ in wanted])
        tries = len(opened)
        eventually(lambda: len(opened) > tries + 2, 60)
        assert relay.states()[0].database is not None
        box.run(f"GRANT UPDATE ON :schema.requests TO {place.relay}")
        eventually(lambda: {row["state"] for row in box.rows()} == {"sent"}, 60)
    box.connection.close()
    assert sorted(ids(stack, name)) == sorted(wanted)


@pytest.mark.parametrize("table", ["inbox", pytest.param("requests", marks=pytest.mark.long)])
def test_an_outbox_that_takes_no_end_is_away_for_its_readers_until_it_does(
    place: Place,
    stack: Stack,
    topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    table: str,
) -> None:
    """They connect and look in between, and what they read comes again: neither ends the outage."""
    caplog.set_level("INFO", "oncepool.relay")
    opened: list[str] = []

    def open_counted(url: str, name: str) -> Connection:
        opened.append(name)
        return open_connection(url, name)

    box, results = Outbox(place.url, SCHEMA), topic()
    route = Route(topic(), {"bootstrap.servers": stack.kafka}, results_topic=results)
    relay = Relay(place.of(place.relay), {"default": route}, schema=SCHEMA, inbox=True)
    [reader] = [loop for loop in relay._loops if not loop.state.sends]
    with relay:
        with psycopg.connect(place.of(place.program)) as connection:
            outbox.add(connection, "t", {}, request_id="a")
        eventually(lambda: box.rows()[0]["state"] == "sent", 60)
        eventually(lambda: reader.state.database is None, 60)
        may = "DELETE" if table == "requests" else "INSERT"
        box.run(f"REVOKE {may} ON :schema.{table} FROM {place.relay}")
        at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        producer = Producer({"bootstrap.servers": stack.kafka})
        end = {"id": "a", "type": "t", "state": "done", "code": "ok", "at": at}
        producer.produce(results, key="a", value=orjson.dumps(end))
        assert producer.flush(30) == 0
        eventually(lambda: reader.state.database is not None, 60)
        monkeypatch.setattr(loop, "open_connection", open_counted)
        caplog.clear()
        away = set[bool]()

        def tried() -> bool:
            away.add(reader.state.database is not None)
            return len(opened) > 2

        eventually(tried, 60)
        assert away == {True}
        assert "the outbox answers" not in caplog.text
        box.run(f"GRANT {may} ON :schema.{table} TO {place.relay}")
        eventually(lambda: not box.rows(), 60)
        eventually(lambda: reader.state.database is None, 60)
    assert [row["id"] for row in box.rows("SELECT id FROM :schema.inbox")] == ["a"]
    box.connection.close()
