"""A relay in a service whose outbox is not there, or not of its version."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from feedback import outbox
from feedback.backoff import Breaker
from feedback.outbox.migrations import migrate, outbox_migrations
from feedback.outbox.relay import Relay, Route, outage
from stack import Stack
from tests.support.outbox import Outbox, make_old
from tests.support.proxy import Proxy
from tests.support.topic_reader import ids
from tests.support.waiting import eventually

KNOWN = outbox_migrations()[-1].version
MIGRATE = "run `oncepool outbox migrate`"
NEWER = "INSERT INTO :schema.schema_version VALUES (99, 'later')"


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between tries that fail."""
    monkeypatch.setattr(outage, "Breaker", lambda: Breaker(0.05, 0.1))


@pytest.fixture
def place(
    stack: Stack,
    empty_schema: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> Iterator[Outbox]:
    """Where there is no outbox yet; what relays say is caught."""
    monkeypatch.setenv("ONCEPOOL_OUTBOX_SCHEMA", empty_schema)
    caplog.set_level("WARNING", "oncepool.relay")
    made = Outbox(stack.database, empty_schema)
    yield made
    made.connection.close()


def relay(stack: Stack, outbox_: Outbox, topic: str, url: str = "") -> Relay:
    """One that sends, and reads answers."""
    route = Route(topic, {"bootstrap.servers": stack.kafka}, stack.redis)
    return Relay(url or outbox_.url, {"default": route})


def told(one: Relay, text: str) -> bool:
    """Whether each of its threads says that of the outbox, after more than one try."""
    tries = [loop._outbox._breaker._backoff._tries for loop in one._loops]
    return min(tries) > 1 and all(text in (state.database or "") for state in one.states())


def goes_on(one: Relay, stack: Stack, outbox_: Outbox, topic: str) -> None:
    """It sends what is added, and reads answers."""
    with psycopg.connect(outbox_.url) as connection:
        outbox.add(connection, "t", {}, request_id="a")
    eventually(lambda: ids(stack, topic) == ["a"], 60)
    eventually(lambda: all(state.database is None for state in one.states()), 60)


@pytest.mark.parametrize("version", [0, 1, KNOWN - 1])
def test_what_is_missing_is_said_once_with_what_to_do_and_it_goes_on_once_that_is_done(
    place: Outbox, stack: Stack, topic: Callable[..., str], caplog: pytest.LogCaptureFixture,
    version: int,
) -> None:  # fmt: skip
    """Also by those of an older version that it could send from."""
    name = topic()
    lacks = f"version {version}, {KNOWN} is needed" if version else "does not exist"
    with psycopg.connect(place.url) as connection:
        if version:
            make_old(connection, place.schema, version)
    with relay(stack, place, name) as one:
        eventually(lambda: told(one, MIGRATE) and told(one, lacks), 60, lambda: caplog.text)
        lines = [record.getMessage() for record in caplog.records]
        assert sorted(line.partition(":")[0] for line in lines) == ["default", "default answers"]
        assert all(place.schema in line and MIGRATE in line and lacks in line for line in lines)
        assert ids(stack, name) == []
        with psycopg.connect(place.url) as connection:
            migrate(connection, place.schema, [])
        goes_on(one, stack, place, name)


def test_tables_of_a_newer_version_are_left_alone(
    place: Outbox, stack: Stack, topic: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    name = topic()
    with psycopg.connect(place.url) as connection:
        migrate(connection, place.schema, [])
    place.run(NEWER)
    with relay(stack, place, name) as one:
        eventually(lambda: told(one, "install the newer Oncepool"), 60, lambda: caplog.text)
        assert place.rows("SELECT FROM :schema.shards") == []
        place.run("DELETE FROM :schema.schema_version WHERE version = 99")
        goes_on(one, stack, place, name)


def test_a_relay_that_works_goes_on_with_tables_that_are_upgraded_meanwhile(
    place: Outbox, stack: Stack, topic: Callable[..., str]
) -> None:
    name = topic()
    with psycopg.connect(place.url) as connection:
        migrate(connection, place.schema, [])
    with Proxy.of(place.url) as proxy, relay(stack, place, name, proxy.before(place.url)) as one:
        eventually(lambda: all(state.database is None for state in one.states()), 60)
        place.run(NEWER)
        assert proxy.cut_connections() > 0
        goes_on(one, stack, place, name)


def test_that_tables_are_missing_is_news_also_after_an_outage(
    place: Outbox, stack: Stack, topic: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    with Proxy.of(place.url) as proxy:
        proxy.cut()
        with relay(stack, place, topic(), proxy.before(place.url)) as one:
            eventually(lambda: told(one, "refused"), 60, lambda: caplog.text)
            proxy.mend()
            eventually(lambda: told(one, MIGRATE), 60, lambda: caplog.text)
    assert caplog.text.count("the outbox is away") == caplog.text.count(MIGRATE) == 2
