"""Relays over a real outbox and a real topic."""

from __future__ import annotations

import re
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import orjson
import psycopg
import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from feedback import outbox
from feedback.errors import ConfigurationError, RequestIdInUse
from feedback.outbox.migrations import migrate
from feedback.outbox.relay import Relay, Route, loop
from feedback.outbox.relay.identity import database_identity
from stack import Stack
from tests.support.commands import Commands, answer
from tests.support.outbox import Outbox
from tests.support.own_database import OwnDatabase
from tests.support.pooler import Pooler
from tests.support.proxy import Proxy
from tests.support.topic_reader import ids, messages, request_id
from tests.support.waiting import eventually

KEYS = [None, "a", "b", "c", "d", "e", "f"]


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def relay(stack: Stack, outbox_: Outbox, url: str = "", **topics: str) -> Relay:
    routes = {name: Route(t, {"bootstrap.servers": stack.kafka}) for name, t in topics.items()}
    return Relay(url or outbox_.url, routes, schema=outbox_.schema)


def add(outbox_: Outbox, *given: dict[str, Any]) -> None:
    with psycopg.connect(outbox_.url) as connection:
        outbox.add_many(connection, [("t", {}, options) for options in given])


def states(outbox_: Outbox) -> set[str]:
    return {row["state"] for row in outbox_.rows()}


def test_relays_side_by_side_send_each_row_once_and_keep_the_order_of_keys(
    stack: Stack,
    outbox_: Outbox,
    topic: Callable[..., str],
    opened: ExitStack,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop, "LOOK_EVERY", 600.0)  # what is added wakes them
    name = topic(partitions=3)
    proxy = opened.enter_context(Proxy.of(outbox_.url))
    urls = [proxy.before(outbox_.url), "", ""]
    relays = [opened.enter_context(relay(stack, outbox_, url, default=name)) for url in urls]
    eventually(lambda: all(s.database is None for r in relays for s in r.states()), 30)
    wanted: dict[str | None, list[str]] = {key: [] for key in KEYS}

    def produce(keys: list[str | None], times: int = 10) -> None:
        for _ in range(times):
            some = [(key, uuid.uuid4().hex) for key in keys * 3]
            add(outbox_, *({"key": key, "request_id": id_} for key, id_ in some))
            for key, id_ in some:
                wanted[key].append(id_)

    def check(found: list[Message]) -> None:
        by_key: dict[bytes | None, list[str]] = {}
        for message in found:
            by_key.setdefault(message.key(), []).append(request_id(message))
        for key in KEYS[1:]:
            assert key is not None
            assert list(dict.fromkeys(by_key.pop(key.encode()))) == wanted[key]
        assert {i for some in by_key.values() for i in some} == set(wanted[None])

    threads = [threading.Thread(target=produce, args=(keys,)) for keys in (KEYS[:3], KEYS[3:])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eventually(lambda: states(outbox_) == {"sent"}, 60)
    found = messages(stack, name, 3)
    check(found)
    assert len(found) == sum(map(len, wanted.values()))
    eventually(lambda: sum(state.done for r in relays for state in r.states()) == len(found), 30)

    # One dies between the brokers' answer and its commit: what it had goes out once more.
    monkeypatch.setattr(loop, "LOOK_EVERY", 0.2)
    dies = proxy.wish(lambda data: b"SET state = 'sent'" in data, cut=True)
    while not dies.fulfilled.wait(0.01):
        produce(KEYS, 1)
    produce(KEYS, 1)
    eventually(lambda: states(outbox_) == {"sent"}, 60)
    assert all(r.close() for r in relays)
    found = messages(stack, name, 3)
    check(found)
    times = Counter(map(request_id, found))
    [seqs] = re.findall(rb"[{]([0-9,]+)[}]", dies.request)
    marked = {int(seq) for seq in seqs.split(b",")}
    assert times == {row["id"]: 1 + (row["seq"] in marked) for row in outbox_.rows()}


def test_a_sender_that_no_producer_can_be_made_for_is_told_of_itself(
    stack: Stack, outbox_: Outbox, topic: Callable[..., str], opened: ExitStack
) -> None:
    """The outbox is there, whatever the properties of a sender are."""
    brokers = {"bootstrap.servers": stack.kafka}
    wrong = {**brokers, "max.in.flight.requests.per.connection": "10"}  # and idempotent
    routes = {"default": Route(topic(), brokers), "billing": Route("bills", wrong)}
    one = opened.enter_context(Relay(outbox_.url, routes, schema=outbox_.schema))
    add(outbox_, {"sender": "billing", "request_id": "bill"}, {"request_id": "order"})
    eventually(lambda: "no producer for bills can be made" in str(one.states()[1].other), 30)
    eventually(lambda: one.states()[1].database is None, 30)
    eventually(lambda: outbox_.rows()[1]["state"] == "sent", 30)


def test_a_sender_without_its_topic_disturbs_no_other_and_its_dead_letters_can_be_moved(
    stack: Stack,
    outbox_: Outbox,
    topic: Callable[..., str],
    opened: ExitStack,
) -> None:
    name, missing = topic(), f"late-{uuid.uuid4().hex[:12]}"
    oncepool = Commands(stack, "", "")
    place = {
        "ONCEPOOL_OUTBOX_DATABASE_URL": outbox_.url,
        "ONCEPOOL_OUTBOX_SCHEMA": outbox_.schema,
    }
    opened.enter_context(relay(stack, outbox_, default=name, billing=missing))
    add(outbox_, *({"sender": "billing", "request_id": id_} for id_ in ("bill", "bull")))
    error = "SELECT FROM :schema.requests WHERE sender = 'billing' AND code = 'topic_missing'"
    eventually(lambda: len(outbox_.rows(error)) == 2, 30)
    add(outbox_, {"request_id": "order"})
    eventually(lambda: ids(stack, name) == ["order"], 30)
    # As after some minutes.
    outbox_.run("UPDATE :schema.requests SET failures = 7, next_at = now() WHERE failures > 0")
    eventually(lambda: len(answer(oncepool("outbox", "list", "--json", **place))) == 2, 30)

    [row, _] = answer(oncepool("outbox", "list", "--json", "--type", "t*", **place))
    assert (row["state"], row["code"], row["sender"]) == (
        "undeliverable",
        "topic_missing",
        "billing",
    )
    table = oncepool("outbox", "list", "--state", "undeliverable", "--limit", "1", **place)
    assert missing in table.stdout
    assert "more than these 1" in table.stderr
    dropped = oncepool("outbox", "drop", "bull", "order", "nobody", "--json", **place)
    assert (dropped.exit_code, answer(dropped)["moved"]) == (6, [{"id": "bull"}])
    refused = answer(dropped)["refused"]
    assert [(r["id"], r["state"]) for r in refused] == [("order", "sent"), ("nobody", None)]
    assert all(set(r) == {"id", "state", "reason"} for r in refused)
    with psycopg.connect(outbox_.url) as c, pytest.raises(RequestIdInUse):
        outbox.add(c, "other", {}, request_id="bull")
    assert oncepool("outbox", "drop", "nobody", **place).exit_code == 4
    assert oncepool("outbox", "retry", "--all", **place).exit_code == 2  # nobody to ask
    assert oncepool("outbox", "retry", "--state", "sent", "--yes", **place).exit_code == 2
    found = {
        (r["sender"], r["state"]): r["n"]
        for r in answer(oncepool("outbox", "stats", "--json", **place))
    }
    assert found == {("billing", "undeliverable"): 1, ("default", "sent"): 1}

    admin = AdminClient({"bootstrap.servers": stack.kafka})
    admin.create_topics([NewTopic(missing, num_partitions=1)])[missing].result(30)
    retried = oncepool("outbox", "retry", "--sender", "billing", "--yes", **place)
    assert retried.stdout.split() == ["id", "bill"]
    eventually(lambda: states(outbox_) == {"sent"}, 60)
    assert ids(stack, missing) == ["bill"]
    admin.delete_topics([missing])[missing].result(30)


def test_an_outbox_that_is_away_is_named_and_found_again(
    stack: Stack, outbox_: Outbox, topic: Callable[..., str], opened: ExitStack
) -> None:
    name = topic()
    proxy = opened.enter_context(Proxy.of(outbox_.url))
    made = opened.enter_context(relay(stack, outbox_, proxy.before(outbox_.url), default=name))
    eventually(lambda: made.states()[0].database is None, 30)
    # Its connection breaks between what it has sent and its mark: once more, under the same id.
    lost = proxy.lose_answer(b"SET state = 'sent'")
    add(outbox_, {"request_id": "twice"})
    eventually(lambda: lost.fulfilled.is_set() and states(outbox_) == {"sent"}, 60)
    assert ids(stack, name) == ["twice", "twice"]
    # Or after it has marked it, and does not know.
    lost = proxy.wish(lambda data: b"COMMIT" in data)
    add(outbox_, {"request_id": "once"})
    eventually(lambda: lost.fulfilled.is_set() and states(outbox_) == {"sent"}, 60)
    proxy.cut()
    eventually(lambda: made.states()[0].database is not None, 30)
    add(outbox_, {"request_id": "later"})
    proxy.mend()
    eventually(lambda: states(outbox_) == {"sent"}, 60)
    assert ids(stack, name) == ["twice", "twice", "once", "later"]
    assert made.states()[0].database is None


def test_through_a_proxy_that_pools_transactions_relays_look_by_themselves(
    stack: Stack, outbox_: Outbox, topic: Callable[..., str], opened: ExitStack
) -> None:
    name = topic()
    pooler = opened.enter_context(closing(Pooler(outbox_.url, 2)))
    relays = [
        opened.enter_context(relay(stack, outbox_, pooler.url, default=name)) for _ in range(3)
    ]
    wanted: dict[bytes, list[str]] = {}
    for part in range(3):
        some = [(f"{part}-{n}", f"k{n % 4}") for n in range(20)]
        add(outbox_, *({"request_id": id_, "key": key} for id_, key in some))
        for id_, key in some:
            wanted.setdefault(key.encode(), []).append(id_)
        eventually(lambda: states(outbox_) == {"sent"}, 60)
    found = messages(stack, name)
    for key, in_order in wanted.items():
        assert [request_id(m) for m in found if m.key() == key] == in_order
    assert len(found) == 60
    assert pooler.switched
    assert pooler.shown("statement_timeout") == {"0"}
    assert pooler.heard == set()
    assert {state.database for one in relays for state in one.states()} == {None}


def test_result_records_end_what_no_status_tells_of(
    stack: Stack, outbox_: Outbox, topic: Callable[..., str], opened: ExitStack
) -> None:
    name, results = topic(), topic(partitions=2)
    route = Route(name, {"bootstrap.servers": stack.kafka}, results_topic=results)
    producer = Producer({"bootstrap.servers": stack.kafka})

    def tell(id_: str, **changes: Any) -> None:
        record = {
            "id": id_, "type": "t", "state": "done", "code": "ok", "result": {"n": 1},
            "at": "2030-01-01T00:00:00Z", **changes,
        }  # fmt: skip
        producer.produce(results, orjson.dumps(record), key=id_)

    tell("early")  # before its row is there to be marked
    tell("another's")
    tell("refused", state="failed", code="shutdown")
    producer.produce(results, b"nonsense")
    producer.flush(30)
    add(outbox_, *({"request_id": id_} for id_ in ("early", "late", "refused", "open")))
    opened.enter_context(Relay(outbox_.url, {"default": route}, schema=outbox_.schema))
    eventually(lambda: len(ids(stack, name)) == 4, 60)
    tell("late", state="rejected", code="no_funds")
    tell("refused", state="failed", code="handler_error", at="2030-01-01T00:00:01Z")
    producer.flush(30)
    ended = "SELECT id, state, code, result FROM :schema.finished ORDER BY id"
    eventually(lambda: len(outbox_.rows(ended)) == 3, 60)
    assert [(row["id"], row["state"], row["code"]) for row in outbox_.rows(ended)] == [
        ("early", "done", "ok"),
        ("late", "rejected", "no_funds"),
        ("refused", "failed", "handler_error"),
    ]
    assert [row["id"] for row in outbox_.rows()] == ["open"]
    with psycopg.connect(outbox_.url, autocommit=True) as connection:
        name = f"{outbox_.schema}-relay-default-{database_identity(connection)}"
    group = Consumer({"bootstrap.servers": stack.kafka, "group.id": name})
    both = [TopicPartition(results, n) for n in range(2)]
    eventually(lambda: sum(max(0, p.offset) for p in group.committed(both, timeout=10)) == 6, 60)
    group.close()


def test_outboxes_of_one_name_in_two_databases_each_read_all_records(
    stack: Stack, own_database: OwnDatabase, topic: Callable[..., str], opened: ExitStack,
    outbox_: Outbox,
) -> None:  # fmt: skip
    """Two services with the default schema and sender share a results topic of one partition."""
    with psycopg.connect(own_database.url) as connection:
        migrate(connection, outbox_.schema, [])
    other = Outbox(own_database.url, outbox_.schema)
    opened.callback(other.connection.close)
    name, results = topic(), topic()
    route = Route(name, {"bootstrap.servers": stack.kafka}, results_topic=results)
    for number, one in enumerate((outbox_, other)):
        add(one, {"request_id": f"r{number}"})
        opened.enter_context(Relay(one.url, {"default": route}, schema=one.schema))
        eventually(lambda at=one: states(at) == {"sent"}, 60)
    producer = Producer({"bootstrap.servers": stack.kafka})
    for number in range(2):
        record = {
            "id": f"r{number}", "type": "t", "state": "done", "code": "ok",
            "at": "2030-01-01T00:00:00Z",
        }  # fmt: skip
        producer.produce(results, orjson.dumps(record), key=f"r{number}")
    producer.flush(30)
    for one in (outbox_, other):
        eventually(lambda at=one: states(at) == set(), 60)


def test_an_outboxs_database_has_one_identity_also_where_its_cluster_is_not_told(
    outbox_: Outbox, own_database: OwnDatabase
) -> None:
    urls = (outbox_.url, outbox_.url, own_database.url)
    found = []
    for url in urls:
        with psycopg.connect(url, autocommit=True) as connection:
            found.append(database_identity(connection))
    assert found[0] == found[1] != found[2]
    with psycopg.connect(own_database.url, autocommit=True) as connection:
        connection.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
        connection.execute("SET ROLE pg_monitor")
        assert database_identity(connection) not in found


def test_a_relay_without_a_route_is_refused(outbox_: Outbox) -> None:
    with pytest.raises(ConfigurationError):
        Relay(outbox_.url, {})


def test_a_relay_is_started_as_often_as_one_likes_and_closed_whether_it_was_or_not(
    stack: Stack, outbox_: Outbox, topic: Callable[..., str]
) -> None:
    name = topic()
    one = relay(stack, outbox_, default=name)
    assert one.close()
    for id_ in ("a", "b"):
        with one, one.start():  # goes on where it runs
            assert len(threads_of(one)) == len(one._loops)
            add(outbox_, {"request_id": id_})
            eventually(lambda: states(outbox_) == {"sent"}, 60)
        assert not threads_of(one)
        assert one.close()
    assert ids(stack, name) == ["a", "b"]


def threads_of(relay: Relay) -> list[threading.Thread]:
    ours = {loop._thread for loop in relay._loops}
    return [thread for thread in threading.enumerate() if thread in ours]
