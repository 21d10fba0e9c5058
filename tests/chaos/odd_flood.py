"""Floods a consumer with generated messages, most of them malformed, and checks each one's end.

    scripts/malformed                                        a small one
    scripts/malformed --malformed 1000000 --report docs/reliability

Each message has to end as `odd_messages` says: one dead letter at its place, no row and no effect;
or one row, no dead letter, and an effect only where it is done. Counters and statuses have to agree
with that, no worker may die, the consumer has to answer all the time, to need no more memory the
longer it goes, and to end with code 0. The last line is the verdict; exit code 1 where something is
not as it has to be.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import re
import resource
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from confluent_kafka import KafkaError, Producer
from confluent_kafka import Message as Delivered
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from feedback.journal.migrations import migrate
from stack import Stack
from tests.chaos.odd_ledger import GIVEN_UP, OddLedger
from tests.chaos.odd_messages import MAX_PAYLOAD, REFUSED, UNKNOWN, Generator, Message
from tests.chaos.real.resources import Sample, Watch
from tests.chaos.soak.flat import judged
from tests.support import run
from tests.support.published import command_of, versions
from tests.support.service import Instance
from tests.support.waiting import eventually

PARTITIONS = 6
WORKERS = 2
SHOWN = 20
STALLED = 120.0
"""Seconds without a new row or dead letter after which the rest counts as missing."""
LOOKS = 2.0
"""Seconds between two looks at memory."""
ENOUGH_LOOKS = 60
"""From which on a growth means something."""
MOST_MEMORY = 512.0
"""MiB that any process of the consumer, or this one, may hold at most."""
GROWTH = 16.0
"""MiB that a process may have more at the end than in the middle, by a robust line: what it has in
hand comes and goes, and of half a million messages 32 bytes each must not stay."""
STATUSES = 2_000
"""How many are compared, of all that have one."""
ANY_TIME = {
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "message.timestamp.after.max.ms": str(2**63 - 1),
    "retention.ms": "-1",
}
"""Of the topic: producers may say any time, and nothing is deleted for it."""


@dataclass
class Told:
    """What a flood has shown."""

    problems: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    answers: int = 0
    """How often the consumer was asked whether it lives, and said so."""
    seconds: float = 0.0
    """From the first send to the last end."""


class Flood:
    """One run: a topic and a schema of its own."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        self._stack = stack
        self._name = f"odd{uuid.uuid4().hex[:10]}"
        self._log = folder / "consumer.log"
        admin = AdminClient({"bootstrap.servers": stack.kafka})
        topic = NewTopic(self._name, PARTITIONS, 1, config=ANY_TIME)
        admin.create_topics([topic])[self._name].result(30)
        migrate(stack.database, self._name)
        self.ledger = OddLedger(stack.database, self._name)
        self.told = Told()

    def run(self, refused: int, seed: int) -> None:
        """Sends so many that must be refused, and others, to a consumer that is at work."""
        instance = Instance(self._settings, self._log)
        watch = Watch(lambda: {0: instance.process.pid} if instance.alive else {}, lambda: 0, LOOKS)
        try:
            instance.running()
            began = time.monotonic()
            self._send(refused, seed)
            self._wait(instance)
            self.told.seconds = time.monotonic() - began
            watch.end()
            self._check_log(instance.stop())
        finally:
            watch.end()
            instance.close()
        self.told.samples = watch.samples

    def _send(self, refused: int, seed: int) -> None:
        producer = Producer({
            "bootstrap.servers": self._stack.kafka, "linger.ms": 20, "partitioner": "random",
            "enable.idempotence": True, "compression.type": "lz4",
            "queue.buffering.max.messages": 20_000, "queue.buffering.max.kbytes": 65_536,
        })  # fmt: skip
        for number, message in enumerate(until_refused(Generator(seed), refused)):
            self._produce(producer, number, message)
        producer.flush(120)
        self.ledger.flush()

    def _produce(self, producer: Producer, number: int, message: Message) -> None:
        def delivered(error: KafkaError | None, where: Delivered) -> None:
            if error is not None:
                self.told.problems.append(f"not sent: {message.change}: {error}")
            else:
                self.ledger.add(number, message, where.partition() or 0, where.offset() or 0)

        while True:
            try:
                producer.produce(
                    self._name, message.value, message.key, headers=[*message.headers],
                    timestamp=message.timestamp, on_delivery=delivered,
                )  # fmt: skip
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)

    @property
    def _settings(self) -> dict[str, str]:
        return {
            "ONCEPOOL_APP": "tests.support.odd_app:app",
            "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": self._stack.kafka,
            "ONCEPOOL_KAFKA_TOPICS": self._name,
            "ONCEPOOL_KAFKA_GROUP": self._name,
            "ONCEPOOL_DATABASE_URL": self._stack.database,
            "ONCEPOOL_DATABASE_SCHEMA": self._name,
            "ONCEPOOL_REDIS_URL": self._stack.redis,
            "ONCEPOOL_REDIS_PREFIX": self._name,
            "ONCEPOOL_WORKERS": str(WORKERS),
            "ONCEPOOL_MAX_PAYLOAD": str(MAX_PAYLOAD),
            "ONCEPOOL_HEALTH_PORT": "0",
            "ONCEPOOL_LOG_FORMAT": "console",
        }

    def _wait(self, instance: Instance) -> None:
        """Until nothing is missing, or nothing more comes."""
        seen, since, pause = 0, time.monotonic(), 0.2
        while instance.alive and time.monotonic() - since < STALLED:
            time.sleep(pause)
            began = time.monotonic()
            count = self.ledger.settled()
            if count >= self.ledger.sent:
                return
            if count > seen:
                seen, since = count, time.monotonic()
            self._ask_whether_it_lives(instance)
            # Counting takes longer the more there is, and must not be what the machine does.
            pause = max(0.2, 20 * (time.monotonic() - began))

    def _ask_whether_it_lives(self, instance: Instance) -> None:
        try:
            status, checks = instance.health("/livez")
        except (OSError, http.client.HTTPException) as error:
            self.told.problems.append(f"/livez: {error!r}")
            return
        if status == http.HTTPStatus.OK:
            self.told.answers += 1
        else:
            self.told.problems.append(f"/livez: {status} {checks}")

    def _check_log(self, code: int) -> None:
        if code != 0:
            self.told.problems.append(f"the consumer ended with code {code}")
        with self._log.open(errors="replace") as log:
            for line in log:
                if re.search(r"\[error|worker died", line):
                    self.told.problems.append(f"log: {line[:300]}")

    def check(self) -> None:
        """Compares what stands in the journal, counters and statuses with what has to."""
        self.told.problems += self.ledger.compare()
        self.told.problems += wrong_statuses(self.ledger.some_ids(STATUSES), self._statuses)
        try:
            eventually(lambda: self.ledger.counted() == self.ledger.ends, 10.0)
        except AssertionError:
            counts, ends = self.ledger.counted(), self.ledger.ends
            wrong = {end: (counts[end], n) for end, n in ends.items() if counts[end] != n}
            more = {end: n for end, n in counts.items() if end not in ends}
            self.told.problems.append(f"counted, sent: {wrong}; counted besides: {more}")
        self.told.problems += too_much(self.told.samples)
        if own_memory() > MOST_MEMORY:
            self.told.problems.append(f"the flood itself held {own_memory():.0f} MiB")

    def _statuses(self, ids: list[str]) -> dict[str, str]:
        with contextlib.closing(redis.Redis.from_url(self._stack.redis)) as client:
            values = client.mget([f"{self._name}:status:{name}" for name in ids])
        found = {}
        for name, value in zip(ids, values, strict=True):
            if value is not None:
                status = json.loads(value)
                found[name] = f"{status['state']}/{status['code']}"
        return found


def until_refused(generator: Generator, count: int) -> Iterator[Message]:
    """Messages until so many of them have to be refused."""
    while count:
        message = generator.next()
        count -= message.end in REFUSED
        yield message


def wrong_statuses(ends: dict[str, str], read: Any) -> list[str]:
    """Statuses that a producer reads and that are not the end of its request, in words."""
    found = read(list(ends)) if ends else {}
    return [
        f"status of {name}: {found.get(name, 'none')}, not {end}"
        for name, end in ends.items()
        if found.get(name) != end and (end, found.get(name)) != (UNKNOWN, GIVEN_UP)
    ]


def too_much(samples: list[Sample]) -> list[str]:
    """Memory that is too much, or that grows with what was sent, in words. Pure."""
    found = [
        f"{held.program} held {held.uss:.0f} MiB"
        for sample in samples for held in sample.held if held.uss > MOST_MEMORY
    ][:1]  # fmt: skip
    if len(samples) < ENOUGH_LOOKS:
        return found
    return found + [
        str(one) for one in judged(samples, 1, WORKERS) if one.what == "uss" and one.rise > GROWTH
    ]


def own_memory() -> float:
    """MiB that this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def flood(stack: Stack, refused: int, seed: int, folder: Path) -> Flood:
    """Sends, consumes and checks."""
    made = Flood(stack, folder)
    made.run(refused, seed)
    made.check()
    return made


def report(made: Flood, seed: int, command: str) -> dict[str, Any]:
    """The run in numbers; `command` makes it again."""
    ledger, told = made.ledger, made.told
    return {
        "command": command,
        "seed": seed,
        "verdict": verdict(made),
        "messages": ledger.sent,
        "malformed": refused_of(made),
        "seconds": round(told.seconds, 1),
        "messages a second": round(ledger.sent / max(told.seconds, 0.1)),
        "asked whether it lives, and it did": told.answers,
        "most memory of one process, MiB": {
            program: round(max((s.most("uss", program) for s in told.samples), default=0))
            for program in ("main", "worker", "maintenance")
        },
        "most memory of the flood itself, MiB": round(own_memory()),
        "by end": dict(ledger.ends.most_common()),
        "by what was changed": {name or "nothing": n for name, n in ledger.changes.most_common()},
        "problems": told.problems[:SHOWN],
        "versions": versions(),
    }


def refused_of(made: Flood) -> int:
    return sum(n for end, n in made.ledger.ends.items() if end in REFUSED)


def verdict(made: Flood) -> str:
    """In a few words."""
    count = len(made.told.problems)
    return f"{count:,} problems" if count else "each has the end that it has to have"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--malformed", type=int, default=20_000,
                        help="messages that must be refused; valid ones come besides")  # fmt: skip
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--report", type=Path, help="the figures go to this folder")
    options = parser.parse_args()
    versions()  # which may be other ones in the end
    run.begin()
    try:
        with tempfile.TemporaryDirectory() as folder:
            made = flood(run.own_stack("flood"), options.malformed, options.seed, Path(folder))
    finally:
        run.end()
    told = report(made, options.seed, command_of("scripts/malformed", parser, options))
    if options.report is not None:
        options.report.mkdir(parents=True, exist_ok=True)
        (options.report / "malformed.json").write_text(json.dumps(told, indent=1) + "\n")
    lines = [f"{n:>10,} {end}" for end, n in made.ledger.ends.most_common()]
    lines += [f"{name}: {told[name]}" for name in told if name.startswith("most memory")]
    lines += [f"problem: {problem}" for problem in made.told.problems[:SHOWN]]
    lines.append(
        f"seed {options.seed}: {told['messages']:,} messages, {told['malformed']:,} of them"
        f" malformed, {told['seconds']:.0f} s: {told['verdict']}\n"
    )
    sys.stdout.write("\n".join(lines))
    return int(bool(made.told.problems))


if __name__ == "__main__":
    run.end_at_sigterm()
    sys.exit(main())
