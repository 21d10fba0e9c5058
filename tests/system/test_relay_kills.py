"""`oncepool relay` as processes, killed around each step of an answer, and one of two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest
from confluent_kafka import Producer

from feedback import outbox
from feedback.contract.fingerprint import fingerprint
from feedback.contract.states import State
from feedback.status.redis_store import RedisStatusStore
from feedback.status.status import StatusFields, StatusWrite
from stack import Stack
from tests.support.kafka_frames import is_offset_commit
from tests.support.kafka_proxy import LoneBrokerProxy
from tests.support.outbox import Outbox
from tests.support.proxy import Proxy, Wish, commit_after
from tests.support.relay_process import HELD, RelayProcess
from tests.support.topic_reader import ids, messages, request_id
from tests.support.waiting import eventually

ENDING = b"news AS ("
"""Of the statement that writes ends."""
NUMBER = 5
RECORDED = ("ended", "told", "committed")
"""What was done with a result record, and its relay does not know yet."""
SENDERS = RECORDED


@pytest.fixture
def outbox_(outbox_: Outbox) -> Outbox:
    """It hears what is told of ends."""
    outbox_.connection.execute(f"LISTEN {outbox_.schema}_settled".encode())
    return outbox_


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def add(outbox_: Outbox, *names: str, **options: Any) -> None:
    with psycopg.connect(outbox_.url) as connection:
        many: list[Any] = [("t", {}, {"request_id": name, **options}) for name in names]
        outbox.add_many(connection, many)


def told_once(outbox_: Outbox, names: list[str]) -> None:
    """Each of these has ended, and that was told once in each way."""
    eventually(lambda: not outbox_.rows(), 90, lambda: str(outbox_.rows()))
    rows = outbox_.rows("SELECT id, state, sends FROM :schema.finished")
    assert sorted(row["id"] for row in rows) == sorted(names)
    assert {(row["state"], row["sends"]) for row in rows} == {("done", 1)}
    inbox = Counter(row["id"] for row in outbox_.rows("SELECT id FROM :schema.inbox"))
    heard = [*outbox_.connection.notifies(timeout=60, stop_after=len(names))]
    heard += outbox_.connection.notifies(timeout=0)  # what came beside them
    assert inbox == Counter(notice.payload for notice in heard) == Counter(names)


def done_before(store: RedisStatusStore, name: str) -> StatusWrite:
    """The answer, which stands before the request is sent: so the first look finds it."""
    told = StatusFields(
        name, "t", State.DONE, 1, code="ok", attempt=1, at=datetime.now(UTC),
        fingerprint=fingerprint("t", b"{}"), result=b'{"n":1}',
    )  # fmt: skip
    return StatusWrite(name, told.encode(), 600)


STEPS: dict[str, Callable[[Proxy, Proxy, bytes], Wish]] = {
    "read": lambda _, statuses, name: statuses.wish(
        lambda data: b"MGET" in data and name in data, HELD
    ),
    "ended": lambda database, _, __: database.wish(lambda data: ENDING in data, HELD),
    "told": lambda database, _, __: database.wish(commit_after(ENDING), HELD),
}
"""What the relay has done with answers from Redis, and does not know yet."""


def test_a_relay_that_is_killed_at_an_answer_tells_of_it_once(
    stack: Stack, outbox_: Outbox, topic: Callable[..., str], prefix: str, opened: ExitStack,
    tmp_path: Path,
) -> None:  # fmt: skip
    name = topic()
    database = opened.enter_context(Proxy.of(outbox_.url))
    statuses = opened.enter_context(Proxy.of(stack.redis))
    store = opened.enter_context(closing(RedisStatusStore(stack.redis, prefix, timeout=30.0)))
    environment = {
        "ONCEPOOL_OUTBOX_DATABASE_URL": database.before(outbox_.url),
        "ONCEPOOL_OUTBOX_INBOX": "true",
        "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": stack.kafka,
        "ONCEPOOL_KAFKA_TOPIC": name,
        "ONCEPOOL_REDIS_URL": statuses.before(stack.redis),
        "ONCEPOOL_REDIS_PREFIX": prefix,
    }

    def start() -> RelayProcess:
        return opened.enter_context(RelayProcess(environment, tmp_path / "log"))

    wanted: list[str] = []
    one = start()
    for step, wish in STEPS.items():
        one.is_ready()
        some = [f"{step}-{n}" for n in range(NUMBER)]
        store.write([done_before(store, id_) for id_ in some])
        held = wish(database, statuses, some[0].encode())
        add(outbox_, *some)
        wanted += some
        assert held.fulfilled.wait(60), one.log
        one.kill()
        for proxy in (database, statuses):
            proxy.cut_connections()  # what is held is held for nobody
        one = start()
    told_once(outbox_, wanted)
    one.is_ready()  # all may have been told by those before it
    assert one.stop() == 0
    assert sorted(ids(stack, name)) == sorted(wanted)


def result_record(id_: str) -> dict[str, Any]:
    return {
        "id": id_, "type": "t", "state": "done", "code": "ok", "result": {"n": 1},
        "at": datetime.now(UTC).isoformat(),
    }  # fmt: skip


@pytest.mark.long  # brokers give a killed reader's partitions away after 45 s
def test_a_relay_that_is_killed_at_a_result_record_tells_of_it_once(
    stack: Stack, outbox_: Outbox, topic: Callable[..., str], opened: ExitStack, tmp_path: Path
) -> None:
    """A relay for each step, so that their heirs wait together. There is no Redis to read."""
    producer = Producer({"bootstrap.servers": stack.kafka})
    database = {step: opened.enter_context(Proxy.of(outbox_.url)) for step in RECORDED}
    broker = {step: opened.enter_context(LoneBrokerProxy.of(stack.kafka)) for step in RECORDED}
    results = {step: topic() for step in RECORDED}
    for step, its_results in results.items():
        (tmp_path / f"{step}.toml").write_text(
            f'[outbox.routes.{step}]\ntopic = "{topic()}"\nresults_topic = "{its_results}"\n'
        )

    def start(step: str) -> RelayProcess:
        environment = {
            "ONCEPOOL_CONFIG": str(tmp_path / f"{step}.toml"),
            "ONCEPOOL_OUTBOX_DATABASE_URL": database[step].before(outbox_.url),
            "ONCEPOOL_OUTBOX_INBOX": "true",
            "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{broker[step].port}",
        }
        return opened.enter_context(RelayProcess(environment, tmp_path / f"{step}.log"))

    def answer(number: int) -> None:
        for step in RECORDED:
            add(outbox_, f"{step}-{number}", sender=step)
        unsent = "SELECT FROM :schema.requests WHERE state = 'unsent'"
        eventually(lambda: not outbox_.rows(unsent), 60)
        for step, results_topic in results.items():
            record = result_record(f"{step}-{number}")
            producer.produce(results_topic, orjson.dumps(record), key=record["id"])
        assert producer.flush(30) == 0

    relays = {step: start(step) for step in RECORDED}
    for one in relays.values():
        one.is_ready()
    held = {
        "ended": database["ended"].wish(lambda data: ENDING in data, HELD),
        "told": database["told"].wish(commit_after(ENDING), HELD),
        "committed": broker["committed"].wish(is_offset_commit, HELD),
    }
    answer(0)
    for step, one in relays.items():
        assert held[step].fulfilled.wait(60), one.log
        one.kill()
        for proxy in (database[step], broker[step]):
            proxy.cut_connections()
    relays = {step: start(step) for step in RECORDED}
    answer(1)  # the heirs come to it behind what was not committed
    told_once(outbox_, [f"{step}-{number}" for step in RECORDED for number in range(2)])
    assert [one.stop() for one in relays.values()] == [0, 0, 0]


@pytest.mark.long  # relays of one process show it, and the chaos run
def test_of_two_relays_one_is_killed_and_the_other_goes_on_in_order(
    stack: Stack, outbox_: Outbox, topic: Callable[..., str], opened: ExitStack, tmp_path: Path
) -> None:
    name = topic(partitions=3)
    proxy = opened.enter_context(Proxy.of(outbox_.url))
    urls = (proxy.before(outbox_.url), outbox_.url)
    dies, lives = (
        opened.enter_context(
            RelayProcess(
                {
                    "ONCEPOOL_OUTBOX_DATABASE_URL": url,
                    "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": stack.kafka,
                    "ONCEPOOL_KAFKA_TOPIC": name,
                },
                tmp_path / f"log-{number}",
            )
        )
        for number, url in enumerate(urls)
    )
    for one in (dies, lives):
        one.is_ready()
    wanted: dict[bytes, list[str]] = {}

    def produce() -> None:
        with psycopg.connect(outbox_.url) as connection:
            for n in range(200):
                key, id_ = f"k{n % 20}", f"r{sum(map(len, wanted.values()))}"
                outbox.add(connection, "t", {}, request_id=id_, key=key)
                wanted.setdefault(key.encode(), []).append(id_)

    held = proxy.wish(lambda data: b"SET state = 'sent'" in data, HELD)
    while not held.fulfilled.wait(0.01):
        produce()
    for _ in range(3):
        produce()
    dies.kill()
    proxy.cut_connections()
    produce()
    eventually(lambda: {row["state"] for row in outbox_.rows()} == {"sent"}, 60, lambda: lives.log)
    assert lives.stop() == 0

    found = messages(stack, name, 3)
    for key, in_order in wanted.items():
        first = dict.fromkeys(request_id(m) for m in found if m.key() == key)
        assert list(first) == in_order
    times = Counter(map(request_id, found))
    assert set(times) == {id_ for some in wanted.values() for id_ in some}
    assert set(times.values()) == {1, 2}, "what it had sent and not marked goes once more"
