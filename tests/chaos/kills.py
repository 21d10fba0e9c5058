"""Kills main processes under load, then changes a group in peace, and checks that nothing is lost.

    scripts/kills --kills 50 --changes 20 --seed 7

Nobody sends anything again. Each request has to have one effect, each malformed message one dead
letter, and the effects of a key have to stand in the order in which they were sent; after a kill
those may not that were in flight at that moment. The last line is the verdict; exit code 1 where
something is not as it has to be.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import psycopg
from confluent_kafka import KafkaError, Producer
from confluent_kafka import Message as Delivered
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from feedback.journal.migrations import migrate
from stack import Stack
from tests.support import run
from tests.support.service import Instance

PARTITIONS = 6
KEYS = 200
MALFORMED = 0.01
STALLED = 90.0
"""Seconds without progress after which the rest counts as missing."""
ENTERED_TWICE = 0.001
"""Share of handlers that may be entered twice where nothing is killed."""
CLASSIC = {"ONCEPOOL_KAFKA_PROTOCOL": "classic", "ONCEPOOL_KAFKA_SESSION_TIMEOUT": "6"}
PROTOCOLS = {
    "range": {**CLASSIC, "ONCEPOOL_KAFKA_ASSIGNOR": "range"},
    "cooperative-sticky": {**CLASSIC, "ONCEPOOL_KAFKA_ASSIGNOR": "cooperative-sticky"},
    "consumer": {"ONCEPOOL_KAFKA_PROTOCOL": "consumer"},
}


class Load:
    """A steady flow of keyed requests, and some malformed messages; notes what has arrived."""

    def __init__(self, kafka: str, topic: str, rate: float, seed: int, seconds: float) -> None:
        self._topic, self._rate, self._seconds = topic, rate, seconds
        self._random = random.Random(seed)
        self._producer = Producer(
            {"bootstrap.servers": kafka, "linger.ms": 5, "enable.idempotence": True}
        )
        self.sent: set[str] = set()
        self.malformed = 0
        self.failed = 0
        self._numbers: Counter[int] = Counter()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begins to send."""
        self._thread.start()

    def stop(self) -> None:
        """Sends nothing more; returns once all has arrived."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(60)
        self._producer.flush(60)

    def _run(self) -> None:
        begun, count = time.monotonic(), 0
        while not self._stop.wait(0.02):
            due = int((time.monotonic() - begun) * self._rate)
            for _ in range(due - count):
                self._send()
            count = due
            self._producer.poll(0)

    def _send(self) -> None:
        key = self._random.randrange(KEYS)
        if self._random.random() < MALFORMED:
            self._producer.produce(
                self._topic, b"{}", str(key), headers={"ce_type": b"step"}, on_delivery=self._bad
            )
            return
        self._numbers[key] += 1
        number = self._numbers[key]
        name = f"{key}-{number}"
        value = orjson.dumps({"key": str(key), "number": number, "seconds": self._seconds})

        def told(error: KafkaError | None, _message: Delivered) -> None:
            if error is None:
                self.sent.add(name)
            else:
                self.failed += 1

        self._producer.produce(
            self._topic, value, str(key), on_delivery=told,
            headers={"ce_id": name.encode(), "ce_type": b"step"},
        )  # fmt: skip

    def _bad(self, error: KafkaError | None, _message: Delivered) -> None:
        if error is None:
            self.malformed += 1


@dataclass
class Verdict:
    """What was found of one round."""

    title: str
    facts: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def zero(self, name: str, value: int) -> None:
        """This has to be nothing."""
        self.facts[name] = value
        if value:
            self.wrong.append(f"{name}: {value}")


class Group:
    """A topic, a schema and the instances that work on them."""

    def __init__(
        self, stack: Stack, folder: Path, settings: dict[str, str], tools: random.Random
    ) -> None:
        self._stack, self._folder, self._random = stack, folder, tools
        self.name = f"kills{uuid.uuid4().hex[:10]}"
        self.instances: list[Instance] = []
        self.started = 0
        self._entries = folder / f"{self.name}.entries"
        topic = NewTopic(self.name, PARTITIONS, 1)
        admin = AdminClient({"bootstrap.servers": stack.kafka})
        admin.create_topics([topic])[self.name].result(30)
        migrate(stack.database, self.name)
        self.rows(
            "CREATE TABLE {s}.steps (seq bigserial, id text, key text, number int)", fetch=False
        )
        self._settings = {
            "ONCEPOOL_APP": "tests.support.steps_app:app",
            "STEPS_TABLE": f"{self.name}.steps",
            "STEPS_ENTRIES": str(self._entries),
            "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": stack.kafka,
            "ONCEPOOL_KAFKA_TOPICS": self.name,
            "ONCEPOOL_KAFKA_GROUP": self.name,
            "ONCEPOOL_DATABASE_URL": stack.database,
            "ONCEPOOL_DATABASE_SCHEMA": self.name,
            "ONCEPOOL_REDIS_URL": stack.redis,
            "ONCEPOOL_REDIS_PREFIX": self.name,
            "ONCEPOOL_WORKERS": "1",
            **settings,
        }

    def rows(self, statement: str, *, fetch: bool = True) -> list[tuple[int, ...]]:
        """Runs a statement; {s} is the schema."""
        with psycopg.connect(self._stack.database, autocommit=True) as connection:
            cursor = connection.execute(statement.replace("{s}", self.name).encode())
            return cursor.fetchall() if fetch else []

    def start(self, *, wait: bool = False) -> None:
        """One more instance."""
        log = self._folder / f"{self.name}-{self.started}.log"
        self.started += 1
        instance = Instance(self._settings, log)
        self.instances.append(instance)
        if wait:
            instance.running()

    def kill(self) -> None:
        """SIGKILL to one main process."""
        victim = self.instances.pop(self._random.randrange(len(self.instances)))
        victim.kill()

    def stop(self) -> int:
        """SIGTERM to one main process; its exit code."""
        return self.instances.pop(self._random.randrange(len(self.instances))).stop()

    def close(self) -> None:
        """Ends all that runs."""
        for instance in self.instances:
            instance.close()

    @property
    def log(self) -> str:
        """What all instances have said."""
        return "".join(p.read_text() for p in sorted(self._folder.glob(f"{self.name}-*.log")))

    def entries(self) -> Counter[str]:
        """Id -> how often its handler was entered."""
        return Counter(self._entries.read_text().split()) if self._entries.exists() else Counter()

    def finish(self, load: Load) -> None:
        """Waits until everything has its end, or nothing more comes."""
        seen, since = -1, time.monotonic()
        wanted = len(load.sent) + load.malformed
        while time.monotonic() - since < STALLED:
            [(rows, letters)] = self.rows(
                "SELECT (SELECT count(*) FROM {s}.requests WHERE state = 'done'),"
                " (SELECT count(*) FROM {s}.dead_letters)"
            )
            if rows + letters >= wanted:
                return
            if rows + letters > seen:
                seen, since = rows + letters, time.monotonic()
            time.sleep(0.2)

    def judge(self, title: str, load: Load, *, killed: int) -> Verdict:
        """Looks at effects, journal and entries."""
        verdict = Verdict(title)
        steps = self.rows("SELECT id, key, number FROM {s}.steps ORDER BY seq")
        effects = Counter(str(row[0]) for row in steps)
        done = {str(r[0]) for r in self.rows("SELECT id FROM {s}.requests WHERE state = 'done'")}
        [(letters,)] = self.rows("SELECT count(*) FROM {s}.dead_letters")
        entries = self.entries()
        verdict.facts |= {"sent": len(load.sent), "malformed": load.malformed, "kills": killed}
        verdict.zero("not sent", load.failed)
        verdict.zero("lost", len(load.sent - effects.keys()))
        verdict.zero("malformed lost", max(0, load.malformed - letters))
        verdict.zero("malformed twice", max(0, letters - load.malformed))
        verdict.zero("effects twice", sum(n > 1 for n in effects.values()))
        verdict.zero("journal and effects differ", len(done ^ effects.keys()))
        highest: dict[str, int] = {}
        disorder = 0
        for _, key, number in steps:
            disorder += number < highest.get(str(key), 0)
            highest[str(key)] = max(highest.get(str(key), 0), number)
        if killed:
            verdict.facts["out of key order"] = disorder
        else:
            verdict.zero("out of key order", disorder)
        twice = sum(n - 1 for n in entries.values() if n > 1)
        verdict.facts["entered twice"] = twice
        verdict.facts["read again and answered"] = sum(
            row[0] for row in self.rows("SELECT n FROM {s}.counters WHERE code = 'read_again'")
        )
        if not killed and twice > ENTERED_TWICE * max(1, len(load.sent)):
            verdict.wrong.append(f"entered twice: {twice} of {len(load.sent)}")
        return verdict


def kills(group: Group, load: Load, count: int, tools: random.Random) -> int:
    """Kills main processes, one after the other, and starts others; how many."""
    for _ in range(3):
        group.start()
    group.instances[0].running()
    load.start()
    for _ in range(count):
        time.sleep(tools.uniform(1.0, 4.0))
        group.kill()
        group.start()
    load.stop()
    group.finish(load)
    return count


def changes(group: Group, load: Load, count: int, tools: random.Random) -> int:
    """Lets the group grow and shrink in peace."""
    group.start(wait=True)
    load.start()
    for number in range(count):
        time.sleep(tools.uniform(1.0, 3.0))
        if len(group.instances) < 2 or (number % 2 == 0 and len(group.instances) < 4):
            group.start(wait=True)
        else:
            group.stop()
    load.stop()
    group.finish(load)
    return 0


def main() -> int:
    """Runs all rounds; 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="of main processes, in all")
    parser.add_argument("--changes", type=int, default=12, help="joins and leaves, a protocol")
    parser.add_argument("--rate", type=float, default=250.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=0.002, help="of each handler")
    parser.add_argument("--protocol", choices=PROTOCOLS, action="append")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--logs", type=Path, help="a folder that keeps the logs")
    given = parser.parse_args()
    tools, verdicts = random.Random(given.seed), []
    begun = run.begin()
    protocols = given.protocol or list(PROTOCOLS)
    try:
        with tempfile.TemporaryDirectory() as made:
            folder = given.logs or Path(made)
            folder.mkdir(parents=True, exist_ok=True)
            run.fetch()
            stack = run.stack_of_run()
            for protocol in protocols:
                each = -(-given.kills // len(protocols))
                rounds = (("kills", kills, each), ("changes", changes, given.changes))
                for title, happens, count in rounds:
                    if not count:
                        continue
                    group = Group(stack, folder, PROTOCOLS[protocol], tools)
                    load = Load(stack.kafka, group.name, given.rate, given.seed, given.seconds)
                    try:
                        killed = happens(group, load, count, tools)
                        verdict = group.judge(f"{protocol}, {count} {title}", load, killed=killed)
                    finally:
                        load.stop()
                        group.close()
                    verdicts.append(verdict)
                    say(verdict)
    finally:
        if begun:
            run.end()
    wrong = [f"{v.title}: {line}" for v in verdicts for line in v.wrong]
    passed = "PASSED: nothing lost, nothing twice, nothing sent again"
    sys.stdout.write(("; ".join(wrong) or passed) + "\n")
    return 1 if wrong else 0


def say(verdict: Verdict) -> None:
    """One round in a line."""
    facts = ", ".join(f"{name} {value:g}" for name, value in verdict.facts.items())
    sys.stdout.write(f"{verdict.title}: {facts}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
