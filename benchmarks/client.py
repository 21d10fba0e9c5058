"""What the client adds to the bare steps of asking: answers a second, and how long one takes.

    scripts/bench client [--quick] [--rounds N] [--requests N]

One process answers both sides: it consumes what has come, commits it, and sets what is asked for in
one pipeline. For the clients these are statuses with hints, as a consumer's; for the bare steps
the word `done` under the id. At once: all are sent, then all are waited for. One at a time: `call`,
and a produce with a GET every 0.3 ms. Then the steps for themselves.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import psutil
import redis
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.asking import PAUSE, Times, asked, times_of
from benchmarks.cpu import used
from benchmarks.full_path_runs import ROOT, running
from benchmarks.load import PAYLOAD, create_topic
from benchmarks.machine import facts
from benchmarks.options import options_of, parser_of, rounds_of
from benchmarks.report import print_table, say, write_json
from benchmarks.services import services
from benchmarks.spread import in_turns, ratio
from feedback import AsyncClient, Client
from stack import Stack

ROUNDS = 7
REQUESTS = 20_000
LONGEST = 120.0
PAGE = 500
KIND = "bench.echo"
GIVEN = {"amount": 5, "currency": "EUR", "customer": "c-1234"}
BARE, SYNC, ASYNC = "bare steps", "Client", "AsyncClient"
STEPS = ("produce, confirmed", "a commit", "SET and GET")
PARTS = ("producer", "answering", "broker", "Valkey", "all")


@dataclass(frozen=True, slots=True)
class AnsweredTopic:
    """Of one side, in one round."""

    stack: Stack
    topic: str

    @property
    def client(self) -> dict[str, Any]:
        """What both clients are made of."""
        stack, topic = self.stack, self.topic
        return {"kafka": stack.kafka, "redis": stack.redis, "topic": topic, "prefix": topic}

    def producer(self) -> Producer:
        """As the client's, without anything around it."""
        return Producer({"bootstrap.servers": self.stack.kafka, "linger.ms": 1, "acks": "all",
                         "enable.idempotence": True})  # fmt: skip


@dataclass(frozen=True, slots=True)
class AskedRound:
    """What one side has done in one round."""

    rate: float
    """Answers a second, where all are sent at once."""
    times: Times
    """Of one at a time."""
    cpu: Mapping[str, float]
    """Part -> microseconds for each of those that were sent at once."""


Measure = Callable[[AnsweredTopic, int, int, Callable[[], Mapping[str, float]]], AskedRound]


def by_client(
    place: AnsweredTopic, count: int, singles: int, spent: Callable[[], Mapping[str, float]]
) -> AskedRound:
    """Oncepool's client, in one thread."""
    with Client(**place.client) as client:

        def ask() -> None:
            client.call(KIND, GIVEN, timeout=LONGEST)

        times = asked(ask, singles)
        before, begun = spent(), time.perf_counter()
        ids = [client.submit(KIND, GIVEN) for _ in range(count)]
        for id_ in ids:
            client.wait(id_, LONGEST)
        return _asked(count, begun, times, before, spent())


def by_async_client(
    place: AnsweredTopic, count: int, singles: int, spent: Callable[[], Mapping[str, float]]
) -> AskedRound:
    """Oncepool's client for asyncio; each wait is a task."""
    return asyncio.run(_by_async_client(place, count, singles, spent))


async def _by_async_client(
    place: AnsweredTopic, count: int, singles: int, spent: Callable[[], Mapping[str, float]]
) -> AskedRound:
    async with AsyncClient(**place.client) as client:
        seconds = []
        for n in range(2 * singles):
            begun = time.perf_counter()
            await client.call(KIND, GIVEN, timeout=LONGEST)
            if n >= singles:
                seconds.append(time.perf_counter() - begun)
        before, begun = spent(), time.perf_counter()
        ids = [await client.submit(KIND, GIVEN) for _ in range(count)]
        async with asyncio.TaskGroup() as tasks:
            for id_ in ids:
                tasks.create_task(client.wait(id_, LONGEST))
        return _asked(count, begun, times_of(seconds), before, spent())


def by_steps(
    place: AnsweredTopic, count: int, singles: int, spent: Callable[[], Mapping[str, float]]
) -> AskedRound:
    """A producer, and MGET of what is open, a page at a time."""
    producer, store = place.producer(), redis.Redis.from_url(place.stack.redis)

    def produce() -> str:
        key = str(uuid.uuid4())
        while True:
            try:
                producer.produce(
                    place.topic, PAYLOAD, key, headers=[("ce_id", key), ("ce_type", KIND)]
                )
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
        return f"{place.topic}:{key}"

    def wait(keys: Sequence[str]) -> None:
        end = time.monotonic() + LONGEST
        while keys := [k for k, v in zip(keys, store.mget(keys), strict=True) if v != b"done"]:
            if time.monotonic() > end:
                raise TimeoutError(f"{len(keys)} had no answer in {LONGEST:g} s")
            time.sleep(PAUSE)

    times = asked(lambda: wait([produce()]), singles)
    before, begun = spent(), time.perf_counter()
    keys = [produce() for _ in range(count)]
    for first in range(0, count, PAGE):
        wait(keys[first : first + PAGE])
    found = _asked(count, begun, times, before, spent())
    producer.flush(10)
    store.close()
    return found


SIDES: dict[str, Measure] = {BARE: by_steps, SYNC: by_client, ASYNC: by_async_client}


def _asked(
    count: int, begun: float, times: Times, before: Mapping[str, float], after: Mapping[str, float]
) -> AskedRound:
    seconds = time.perf_counter() - begun
    cpu = {part: 1e6 * (after[part] - before[part]) / count for part in after}
    return AskedRound(count / seconds, times, {**cpu, "all": sum(cpu.values())})


@contextmanager
def place_of(
    stack: Stack, side: str
) -> Iterator[tuple[AnsweredTopic, Callable[[], Mapping[str, float]]]]:
    """A topic with who answers what comes in it, and what CPU was used so far, by process."""
    place = AnsweredTopic(stack, f"bench-{uuid.uuid4().hex[:8]}")
    create_topic(stack.kafka, place.topic)
    form = "plain" if side == BARE else "statuses"
    command = [sys.executable, "-m", "benchmarks.client_answers", stack.kafka, stack.redis]
    with running([*command, place.topic, form], dict(os.environ), ROOT) as answers:
        pids = {"producer": psutil.Process(), "answering": psutil.Process(answers.pid)}

        def spent() -> Mapping[str, float]:
            own = {name: sum(process.cpu_times()[:2]) for name, process in pids.items()}
            served = used([], stack.data)
            return own | {part: served.get(part, 0.0) for part in ("broker", "Valkey")}

        yield place, spent


def step_times(stack: Stack, count: int) -> dict[str, Times]:
    """Each step alone."""
    place = AnsweredTopic(stack, f"bench-{uuid.uuid4().hex[:8]}")
    create_topic(stack.kafka, place.topic)
    producer, store = place.producer(), redis.Redis.from_url(stack.redis)
    consumer = Consumer({"bootstrap.servers": stack.kafka, "group.id": place.topic})

    def produce() -> None:
        producer.produce(place.topic, PAYLOAD)
        producer.flush(10)

    def commit() -> None:
        consumer.commit(offsets=[TopicPartition(place.topic, 0, 0)], asynchronous=False)

    def keep() -> None:
        store.set(place.topic, b"done", ex=60)
        store.get(place.topic)

    with ExitStack() as ending:
        ending.callback(consumer.close)
        ending.callback(store.close)
        return {
            name: asked(step, count)
            for name, step in zip(STEPS, (produce, commit, keep), strict=True)
        }


def tell(
    found: Mapping[str, Sequence[AskedRound]], steps: Sequence[Mapping[str, Times]], line: str
) -> None:
    """Prints the tables."""
    rates = {name: [one.rate for one in each] for name, each in found.items()}
    halves = {name: [one.times.p50 for one in each] for name, each in found.items()}
    print_table(
        "All sent, then all waited for: answers a second, and CPU of each in microseconds",
        ("side", "answers/s", f"/ {BARE}", *PARTS),
        [
            (
                name, median(rates[name]), str(ratio(rates[name], rates[BARE])),
                *(median([one.cpu[part] for one in each]) for part in PARTS),
            )
            for name, each in found.items()
        ],
        line,
    )  # fmt: skip
    alone = [(name, [one[name] for one in steps]) for name in STEPS]
    print_table(
        "One at a time: milliseconds until the answer, and those of the steps alone",
        ("side", "p50", "p99", f"p50 / {BARE}"),
        [
            *(
                (
                    name, median(halves[name]), median([one.times.p99 for one in each]),
                    str(ratio(halves[name], halves[BARE])),
                )
                for name, each in found.items()
            ),
            *(
                (name, median([t.p50 for t in times]), median([t.p99 for t in times]), "")
                for name, times in alone
            ),
        ],
    )  # fmt: skip


def main() -> None:
    parser = parser_of(__doc__, "one round, a tenth of the requests", ROUNDS)
    parser.add_argument("--requests", type=int, help=f"at once (default: {REQUESTS})")
    options = options_of(parser)
    rounds = rounds_of(options, ROUNDS)
    count = options.requests or (REQUESTS // 10 if options.quick else REQUESTS)
    singles = max(20, count // 40)
    with services() as stack:
        machine = facts(stack)
        found: dict[str, list[AskedRound]] = {name: [] for name in SIDES}
        steps = []
        for number, side in in_turns(list(SIDES), rounds):
            with place_of(stack, side) as (place, spent):
                one = SIDES[side](place, count, singles, spent)
            found[side].append(one)
            say(
                f"round {number + 1} of {rounds}, {side}: {one.rate:,.0f}/s, {one.times.p50:.2f} ms"
            )
            if side == BARE:
                steps.append(step_times(stack, singles))
    tell(found, steps, machine.line)
    if options.whole:
        results = {"requests": count, "rounds": rounds, "found": found, "steps": steps}
        write_json("client", machine, results)


if __name__ == "__main__":
    main()
