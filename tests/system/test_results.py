"""Result records from the journal to whoever subscribes, on a real PostgreSQL and Kafka."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from psycopg import sql

from feedback import AsyncClient, Client
from feedback.client.async_results import AsyncResults
from feedback.client.result import Result
from feedback.client.results import Results
from feedback.errors import ConfigurationError, ResultsFailed
from feedback.journal.migrations import migrate
from feedback.journal.result_outbox import ResultRecord, add_results
from processing.ipc.frames import Counts
from processing.settings import MaintenanceSettings
from stack import Stack
from tests.support.maintenance import MaintenanceProcess
from tests.support.service import bench_on
from tests.support.waiting import eventually

WAIT = 90.0


class Place:
    """A journal, a results topic, a client, and maintenance processes that relay records."""

    def __init__(self, stack: Stack) -> None:
        name = uuid.uuid4().hex[:12]
        self.stack, self.topic, self.schema = stack, f"results-{name}", f"test_{name}"
        self.make_topic(self.topic)
        migrate(stack.database, self.schema)
        self.settings = MaintenanceSettings(
            instance="here-1",
            database_url=stack.database,
            schema=self.schema,
            redis_url=stack.redis,
            redis_prefix=f"prefix-{name}",
            log={"log_format": "json", "level": "info"},
            results_topic=self.topic,
            results_kafka={"bootstrap.servers": stack.kafka},
        )
        self.processes: list[MaintenanceProcess] = []
        self.client = Client(
            stack.kafka, stack.redis, "requests", prefix=name, results_topic=self.topic
        )

    def make_topic(self, name: str, **config: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.stack.kafka})
        wanted = NewTopic(name, num_partitions=3, config=config)
        admin.create_topics([wanted])[name].result(30)

    def process(self, **changes: object) -> MaintenanceProcess:
        made = MaintenanceProcess(replace(self.settings, **changes))  # type: ignore[arg-type]
        self.processes.append(made)
        made.ready()
        return made

    def add(self, numbers: Iterable[int], result: bytes = b'{"n":1}') -> None:
        with psycopg.connect(self.stack.database) as connection:
            records = [ResultRecord(f"r-{n}", "order.place", "done", "ok", result) for n in numbers]
            add_results(connection.cursor(), self.schema, records)

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.stack.database) as connection:
            return connection.execute(statement.encode()).fetchall()

    def waiting(self) -> int:
        [(count,)] = self.query(f"SELECT count(*) FROM {self.schema}.results")
        return int(count)

    def sent(self) -> None:
        eventually(lambda: self.waiting() == 0, WAIT, lambda: f"{self.waiting()} wait")

    def close(self) -> None:
        for process in self.processes:
            process.close()
        self.client.close()


@pytest.fixture
def place(own_stack: Stack) -> Iterator[Place]:
    made = Place(own_stack)
    yield made
    own_stack.heal()
    made.close()


def read(results: Results, wanted: Iterable[int]) -> list[Result]:
    """Reads until each of these records has come; returns all that came."""
    missing, came = {f"r-{n}" for n in wanted}, []

    def complete() -> bool:
        while (result := results.poll(0.2)) is not None:
            came.append(result)
            missing.discard(result.id)
        return not missing

    eventually(complete, WAIT, lambda: f"{len(missing)} of them are missing")
    return came


def test_records_arrive_once_and_leave_the_journal(place: Place) -> None:
    place.add(range(1200))
    place.process()

    with place.client.results(from_beginning=True) as results:
        came = read(results, range(1200))

    place.sent()
    assert len(came) == 1200
    first = next(result for result in came if result.id == "r-0")
    assert (first.type, first.state, first.code) == ("order.place", "done", "ok")
    assert first.result == {"n": 1}


def test_counts_wake_the_process(place: Place) -> None:
    process = place.process()

    def looked() -> tuple[float, float]:
        """When it last looked for records, and how long ago that is, in seconds."""
        found = place.query(
            "SELECT extract(epoch FROM state_change),"
            " extract(epoch FROM clock_timestamp() - state_change) FROM pg_stat_activity"
            " WHERE application_name = 'oncepool results here-1' AND datname = current_database()"
        )
        assert found, "it has not connected yet"
        [(at, age)] = found
        return float(at), float(age)

    def woken() -> bool:
        # So long only when it has looked in vain for a while: by itself it waits 4 seconds or 5.
        last = eventually(lambda: (told := looked())[1] > 2.2 and told[0], WAIT)
        process.send(Counts({("order.place", "done", "ok"): 1}))
        return eventually(lambda: (told := looked())[0] > last and told[0]) - last < 3.8

    # Where others kept the counts from being sent in time, it is seen the next time.
    eventually(woken, WAIT)


def test_two_instances_share_the_records(place: Place) -> None:
    with place.client.results() as results:
        place.add(range(3000))
        for name in ("here-1", "here-2"):
            place.process(instance=name)

        came = read(results, range(3000))

    place.sent()
    assert len(came) == 3000


def test_without_a_topic_nothing_is_taken(place: Place) -> None:
    place.add([1])
    process = place.process(results_topic="")

    process.send(Counts({("order.place", "done", "ok"): 1}))

    assert process.stop() == 0
    assert place.waiting() == 1


def test_what_waits_at_the_stop_is_still_sent(place: Place) -> None:
    process = place.process()
    place.add([1])
    place.sent()
    place.add(range(700))

    assert process.stop() == 0

    assert place.waiting() == 0


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
@pytest.mark.long
def test_nothing_is_lost_while_the_broker_is_away(place: Place, kill: bool) -> None:
    results = place.client.results(from_beginning=True)
    place.process()
    place.add(range(100))
    read(results, range(100))

    place.stack.stop_broker(kill=kill)
    place.add(range(100, 900))
    assert place.waiting() >= 800
    place.stack.heal()

    read(results, range(100, 900))
    place.sent()


def test_a_maintenance_process_killed_while_it_sends_loses_nothing(place: Place) -> None:
    results = place.client.results(from_beginning=True)
    place.add(range(4000))
    process = place.process()
    eventually(lambda: place.waiting() < 4000, WAIT)

    os.kill(process.child.pid, signal.SIGKILL)
    place.process()

    read(results, range(4000))
    place.sent()


def test_a_result_too_large_for_the_topic_is_left_out(place: Place) -> None:
    small = f"{place.topic}-small"
    place.make_topic(small, **{"max.message.bytes": "2000"})
    place.add([1, 2])
    place.add([3], result=b'"%s"' % (b"x" * 5000))
    place.add([4])
    place.process(results_topic=small)

    with place.client.results(from_beginning=True, topic=small) as results:
        came = {result.id: result for result in read(results, range(1, 5))}

    place.sent()
    assert [came[f"r-{n}"].result_omitted for n in range(1, 5)] == [False, False, True, False]
    assert came["r-1"].result == {"n": 1}
    assert came["r-3"].result is None


def test_a_claim_that_ran_out_has_a_record(place: Place) -> None:
    claim = sql.SQL(
        "INSERT INTO {} (id, type, state, code, run, attempt, effect, token, lease_until,"
        " fingerprint, topic, partition, kafka_offset, produced_at)"
        " VALUES ('r-1', 'card.charge', 'running', 'claimed', 1, 1, 'external', 'dead',"
        " now() - interval '1 s', '', 'requests', 0, 1, now())"
    ).format(sql.Identifier(place.schema, "requests"))
    with psycopg.connect(place.stack.database) as connection:
        connection.execute(claim)
    place.process(sweep_interval=0.1)

    with place.client.results(from_beginning=True) as results:
        [result] = read(results, [1])

    assert (result.type, result.state, result.code) == ("card.charge", "in_doubt", "worker_died")


# Readers


def test_a_reader_gets_what_comes_from_its_call_on(place: Place) -> None:
    place.process()
    place.add([1])
    place.sent()

    with place.client.results() as results:
        place.add([2])

        assert [result.id for result in read(results, [2])] == ["r-2"]


def test_a_group_goes_on_where_it_stood(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a broker could not tell that at first."""
    place.process()
    group = f"group-{uuid.uuid4().hex}"
    with place.client.results(group, from_beginning=True) as results:
        place.add(range(10))
        read(results, range(10))
    place.add(range(10, 20))

    with place.client.results(group) as results:
        tell, asked = results._source._positions.of, []

        def not_at_first(assigned: list[TopicPartition]) -> list[TopicPartition]:
            asked.append(assigned)
            if len(asked) == 1:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            return tell(assigned)

        monkeypatch.setattr(results._source._positions, "of", not_at_first)
        came = read(results, range(10, 20))
        assert len(asked) > 1

    assert {result.id for result in came} == {f"r-{n}" for n in range(10, 20)}


def test_a_new_group_that_read_nothing_yet_misses_nothing(place: Place) -> None:
    place.process()
    place.add([1])
    place.sent()
    group = f"group-{uuid.uuid4().hex}"
    with place.client.results(group) as results:
        consumer = results._source._consumer
        eventually(lambda: results.poll(0.1) is None and consumer.assignment(), WAIT)
    place.add([2])
    place.sent()

    with place.client.results(group) as results:
        came = read(results, [2])

    assert [result.id for result in came] == ["r-2"]


def test_what_was_not_handled_comes_again(place: Place) -> None:
    """A reader that dies has asked for a record and not for the next."""
    place.process()
    place.add([1])
    group = f"group-{uuid.uuid4().hex}"
    results = place.client.results(group, from_beginning=True)
    read_one = eventually(lambda: results.poll(1.0), WAIT)
    assert read_one.id == "r-1"
    results._last = None  # as if it had died
    results.close()

    with place.client.results(group) as again:
        assert [result.id for result in read(again, [1])] == ["r-1"]


def test_the_client_ends_an_iteration_in_another_thread(place: Place) -> None:
    place.process()
    results = place.client.results()
    came: list[str] = []
    thread = threading.Thread(target=lambda: came.extend(r.id for r in results), daemon=True)
    thread.start()
    place.add([1])
    eventually(lambda: came == ["r-1"], WAIT)

    place.client.close()

    thread.join(60)
    assert not thread.is_alive()


def test_tasks_read_as_threads_do_and_a_wait_that_is_cancelled_loses_nothing(place: Place) -> None:
    place.process()
    group = f"group-{uuid.uuid4().hex}"

    async def until(results: AsyncResults, count: int) -> list[str]:
        """Reads so many records, with waits that are cancelled again and again."""
        came: list[str] = []
        end = time.monotonic() + WAIT
        while len(came) < count:
            assert time.monotonic() < end, came
            asking = asyncio.create_task(results.poll(WAIT))
            await asyncio.wait([asking], timeout=0.02)
            asking.cancel()
            with suppress(asyncio.CancelledError):
                if (result := await asking) is not None:
                    came.append(result.id)
        return came

    async def main() -> None:
        stack, options = place.stack, {"prefix": place.schema, "results_topic": place.topic}
        client = AsyncClient(stack.kafka, stack.redis, "requests", **options)
        async with client, await client.results(group, from_beginning=True) as results:
            await asyncio.to_thread(place.add, range(10))
            assert sorted(await until(results, 10)) == sorted(f"r-{n}" for n in range(10))
        client = AsyncClient(stack.kafka, stack.redis, "requests", **options)
        results = await client.results(group)
        came: list[str] = []

        async def read_on() -> None:
            async for result in results:
                came.append(result.id)  # noqa: PERF401 - looked at meanwhile

        reading = asyncio.create_task(read_on())
        await asyncio.to_thread(place.add, range(10, 20))
        async with asyncio.timeout(WAIT):
            while len(came) < 10:
                await asyncio.sleep(0.05)
        await client.close()
        await asyncio.wait_for(reading, WAIT)
        assert sorted(came) == [f"r-{n}" for n in range(10, 20)]

    asyncio.run(main())


def test_foreign_messages_are_left_out(place: Place) -> None:
    producer = Producer({"bootstrap.servers": place.stack.kafka})
    producer.produce(place.topic, value=b"not a record")
    assert producer.flush(60) == 0
    place.process()
    place.add([1])

    with place.client.results(from_beginning=True) as results:
        assert [result.id for result in read(results, [1])] == ["r-1"]


def test_a_topic_that_is_not_there_is_named(place: Place) -> None:
    with pytest.raises(ResultsFailed, match="oncepool topics create"):
        place.client.results(topic="no-such-topic-anywhere")


def test_without_a_topic_a_reader_is_told_how_to_name_it(place: Place) -> None:
    client = Client(place.stack.kafka, place.stack.redis, "requests")
    with client, pytest.raises(ConfigurationError, match="ONCEPOOL_KAFKA_RESULTS_TOPIC"):
        client.results()


# The whole service


@pytest.mark.long
def test_what_a_service_ends_is_read_by_others(own_stack: Stack, tmp_path: Path) -> None:
    with bench_on(own_stack, tmp_path) as bench:
        topic = f"{bench.topic}-results"
        admin = AdminClient({"bootstrap.servers": own_stack.kafka})
        admin.create_topics([NewTopic(topic, num_partitions=2)])[topic].result(30)
        bench.start(ONCEPOOL_KAFKA_RESULTS_TOPIC=topic, ONCEPOOL_RESULTS_DUPLICATES="true")
        with bench.client.results(topic=topic) as results:
            for number in range(20):
                bench.client.submit("effect", {"table": bench.table}, request_id=f"r-{number}")
            came = read(results, range(20))
            bench.client.submit("effect", {"table": bench.table}, request_id="r-7")
            [again] = read(results, [7])

        assert len(came) == 20
        assert {(r.type, r.state, r.code) for r in came} == {("effect", "done", "ok")}
        assert (again.id, again.state, again.code) == ("r-7", "done", "duplicate")
        eventually(lambda: bench.query(f"SELECT count(*) FROM {bench.schema}.results") == [(0,)])
