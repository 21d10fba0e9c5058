"""A topic that does not exist: whoever starts, looks or sends is told its name and what to do."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from feedback import Client, DeliveryFailed
from tests.support.commands import Commands, answer
from tests.support.service import WAIT, Bench
from tests.support.waiting import eventually


@pytest.fixture
def missing(bench: Bench) -> Iterator[str]:
    name = f"missing-{uuid.uuid4().hex}"
    yield name
    admin = AdminClient({"bootstrap.servers": bench.stack.kafka})
    if name in admin.list_topics(timeout=60).topics:
        admin.delete_topics([name])[name].result(30)


@pytest.fixture
def commands(bench: Bench, missing: str, monkeypatch: pytest.MonkeyPatch) -> Commands:
    for name, value in bench.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ONCEPOOL_KAFKA_TOPICS", missing)
    return Commands(bench.stack, bench.schema, bench.environment["ONCEPOOL_REDIS_PREFIX"])


@pytest.mark.parametrize("protocol", ["consumer", pytest.param("classic", marks=pytest.mark.long)])
def test_an_instance_says_so_and_is_not_ready_until_it_is_made(
    bench: Bench, missing: str, commands: Commands, protocol: str
) -> None:
    topics = f"{bench.topic},{missing}"
    instance = bench.start(
        wait=False,
        ONCEPOOL_KAFKA_TOPICS=topics,
        ONCEPOOL_KAFKA_PROTOCOL=protocol,
        ONCEPOOL_WORKERS="1",
    )
    instance.says("topic does not exist")

    (line,) = [one for one in instance.log.splitlines() if "topic does not exist" in one]
    assert missing in line
    assert "oncepool topics create" in line
    assert "warning" in line
    eventually(lambda: instance.health("/readyz")[1].get("group"), WAIT)
    status, checks = instance.health("/readyz")
    assert (status, checks["topics"]) == (503, False)
    problems = eventually(
        lambda: answer(commands("stats", "--json"))["problems"].get(f"topic {missing}"), WAIT
    )
    assert "oncepool topics create" in problems
    assert bench.outcome("effect", {"table": bench.table}).state == "done"  # the other topic

    created = commands("topics", "create")
    assert created.exit_code == 0, created.output

    eventually(lambda: instance.health("/readyz")[0] == 200, WAIT, lambda: instance.log)
    assert instance.log.count("topic does not exist") == 1
    with Client(
        kafka=bench.stack.kafka,
        redis=bench.stack.redis,
        topic=missing,
        prefix=bench.environment["ONCEPOOL_REDIS_PREFIX"],
    ) as client:
        assert client.call("effect", {"table": bench.table}, timeout=WAIT).state == "done"


@pytest.mark.parametrize("wait", [(), ("--wait", "20")])
def test_send_fails_at_once_with_the_cause(
    missing: str, commands: Commands, wait: tuple[str, ...]
) -> None:
    done = commands("send", "effect", "{}", *wait)

    assert done.exit_code == 1
    assert f"topic {missing} does not exist" in done.output
    assert "oncepool topics create" in done.output
    assert "no answer" not in done.output


def test_a_client_is_told_long_before_its_delivery_timeout(bench: Bench, missing: str) -> None:
    with Client(
        kafka=bench.stack.kafka, redis=bench.stack.redis, topic=missing, delivery_timeout=600
    ) as client:
        # Else the wait would end with WaitTimeout.
        with pytest.raises(DeliveryFailed, match=f"{missing}' does not exist.*topics create"):
            client.call("effect", {}, timeout=60)

        admin = AdminClient({"bootstrap.servers": bench.stack.kafka})
        admin.create_topics([NewTopic(missing, 1)])[missing].result(30)

        def arrives() -> bool:
            try:
                client.submit("effect", {})
                client.flush()
            except DeliveryFailed:
                return False
            return True

        eventually(arrives, WAIT)
