"""A broker's answer after which librdkafka gives a producer up, and each part that has one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial

import pytest
from confluent_kafka import KafkaError

from feedback import AsyncClient, Client, DeliveryFailed
from feedback.journal.result_outbox import ResultRecord, StoredResult
from feedback.outbox.relay.batch import Batch, BatchMarks, ClaimedRow
from feedback.outbox.relay.kafka import TopicSender
from feedback.status.memory_store import MemoryStatusStore
from feedback.status.status import StatusFields
from processing.maintenance.result_producer import ResultProducer, connect
from stack import Stack
from tests.support.produce_proxy import OUT_OF_ORDER, ProduceProxy
from tests.support.topic_reader import messages

NOW = datetime.now(UTC)
SAID = KafkaError(OUT_OF_ORDER).str()
LATE = 20.0
"""Seconds: far less than a producer tries, or a caller waits."""


@pytest.fixture
def broker(stack: Stack) -> Iterator[ProduceProxy]:
    with ProduceProxy.of(stack.kafka) as proxy:
        yield proxy


def address(broker: ProduceProxy) -> str:
    return f"127.0.0.1:{broker.port}"


def test_a_client_goes_on_with_another(
    broker: ProduceProxy, stack: Stack, topic: Callable[..., str]
) -> None:
    name = topic()
    with Client(address(broker), MemoryStatusStore(), name, hints=False) as client:
        for turn in range(2):
            broker.spoil = 1
            request_id = client.submit("t", turn)
            with pytest.raises(DeliveryFailed, match=SAID):
                client.wait(request_id, LATE)
            client.submit("t", turn, request_id=request_id)  # may wait until there is another
            client.submit("t", "later")
            client.flush(LATE)
            status = client.status(request_id)
            assert status is not None
            assert status.state == "accepted"
    # The broker had taken what it was made to refuse: so is an unclear end, and its id the remedy.
    ids = [dict(message.headers())["ce_id"] for message in messages(stack, name)]
    assert (len(ids), len(set(ids))) == (6, 4)


def test_a_client_of_asyncio_goes_on_with_another(
    broker: ProduceProxy, topic: Callable[..., str]
) -> None:
    async def scenario() -> None:
        store = MemoryStatusStore()
        async with AsyncClient(address(broker), store, topic(), hints=False) as client:
            assert await client.delivered(await client.submit("t", 1), LATE)
            broker.spoil = 1
            sent = [await client.submit("t", number) for number in range(20)]
            ends = await asyncio.gather(
                *(client.delivered(one, LATE) for one in sent), return_exceptions=True
            )
            assert {DeliveryFailed} <= set(map(type, ends)) <= {DeliveryFailed, StatusFields}
            for number, one in enumerate(sent):
                await client.submit("t", number, request_id=one)
            await asyncio.gather(*(client.delivered(one, LATE) for one in sent))

    asyncio.run(scenario())


def test_results_go_on_with_another(broker: ProduceProxy, topic: Callable[..., str]) -> None:
    records = [StoredResult(n, NOW, ResultRecord(f"r{n}", "t", "done", "ok", b"1")) for n in (1, 2)]
    producer = ResultProducer(topic(), partial(connect, {"bootstrap.servers": address(broker)}))
    broker.spoil = 1
    first = producer.deliver(records)
    assert first.arrived == []
    assert "sequence desynchronization" in str(first.trouble)
    assert producer.deliver(records).arrived == [1, 2]


def test_a_relay_goes_on_with_another(broker: ProduceProxy, topic: Callable[..., str]) -> None:
    sending = TopicSender(topic(), {"bootstrap.servers": address(broker)})
    rows = [ClaimedRow(n, f"r{n}", "t", b"k", b"{}", [], NOW, NOW, 0) for n in (1, 2)]
    broker.spoil = 1
    for sent in ([], [1, 2]):
        assert sending.open() is None
        batch = Batch(rows, sending.check)
        why = sending.send(batch, batch.to_send, LATE)
        assert (why is None) is bool(sent), why
        assert batch.marks() == BatchMarks(sent, [], in_doubt=() if sent else (1,))
    sending.close()
