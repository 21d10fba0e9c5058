"""A group of consumer processes that come, go and die under load, and the books afterwards."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.committed_offsets import Landed, landed
from tests.support.programs import started
from tests.support.waiting import eventually


@dataclass
class Member:
    """One process."""

    instance: str
    process: subprocess.Popen[bytes]
    log: Path
    killed: bool = False

    def lines(self) -> list[dict[str, Any]]:
        if not self.log.exists():
            return []
        # A line that a kill cut off is none: it is written before the batch is handed over.
        whole = self.log.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]


@dataclass
class Books:
    """What the processes and Kafka's log say together."""

    dispatched: dict[tuple[int, int], list[str]]
    landed: list[Landed]
    ends: dict[int, int]
    killed: set[str]
    dropped: Counter[str]

    @property
    def twice(self) -> dict[tuple[int, int], list[str]]:
        """Offsets that were delivered more than once."""
        return {key: who for key, who in self.dispatched.items() if len(who) > 1}

    @property
    def never(self) -> set[tuple[int, int]]:
        """Offsets that were never delivered."""
        produced = {(p, o) for p, end in self.ends.items() for o in range(end)}
        return produced - self.dispatched.keys()

    def uncovered(self) -> list[tuple[int, int]]:
        """Offsets delivered without a commit above them that carries their process's token."""
        top: dict[tuple[int, str], int] = {}
        for commit in self.landed:
            key = (commit.partition, instance_of(commit.metadata))
            top[key] = max(top.get(key, 0), commit.offset)
        return [
            (partition, offset)
            for (partition, offset), who in self.dispatched.items()
            for instance in who
            if top.get((partition, instance), 0) <= offset
        ]

    def backwards(self) -> list[tuple[Landed, Landed]]:
        """Commits that lie below the one before them."""
        last: dict[int, Landed] = {}
        wrong = []
        for commit in self.landed:
            before = last.get(commit.partition)
            if before is not None and commit.offset < before.offset:
                wrong.append((before, commit))
            last[commit.partition] = commit
        return wrong

    def unexplained(self) -> set[tuple[int, int]]:
        """Offsets never delivered that no killed process's commit, and no drop, accounts for."""
        lost: set[tuple[int, int]] = set()
        position: dict[int, int] = {}
        for commit in self.landed:
            before = position.get(commit.partition, 0)
            if instance_of(commit.metadata) in self.killed:
                lost |= {(commit.partition, o) for o in range(before, commit.offset)}
            position[commit.partition] = commit.offset
        left = self.never - lost
        return left if len(left) > self.dropped.total() else set()


def instance_of(metadata: str) -> str:
    return metadata.split(";")[1].rpartition("-")[0]


@dataclass
class Storm:
    """Starts, stops and kills processes while a thread produces."""

    kafka: str
    topic: str
    group: str
    folder: Path
    settings: dict[str, Any]

    def __post_init__(self) -> None:
        self.members: list[Member] = []
        self._producing = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": self.kafka, "linger.ms": 5, "message.timeout.ms": 60000}
        )
        self._thread: threading.Thread | None = None
        self.produced = 0

    # Processes

    def start(self, **settings: Any) -> Member:
        instance = f"i{len(self.members)}x{uuid.uuid4().hex[:4]}"
        log = self.folder / f"{instance}.log"
        given = {
            "instance": instance,
            "kafka_bootstrap_servers": self.kafka,
            "kafka_topics": [self.topic],
            "kafka_group": self.group,
            "grace": 8,
            "read_again": False,  # there is no journal that answers for what is
            **self.settings,
            **settings,
        }
        process = started(
            "tests.support.consumer_process", json.dumps(given), str(log),
            environment={}, log=self.folder / f"{instance}.stderr",
        )  # fmt: skip
        member = Member(instance, process, log)
        self.members.append(member)
        return member

    def kill(self, member: Member) -> None:
        member.killed = True
        member.process.kill()
        member.process.wait()

    def alive(self) -> list[Member]:
        return [member for member in self.members if member.process.poll() is None]

    def stop(self, member: Member, timeout: float = 60) -> int:
        """Its exit code; it is waited for until it runs, and heeds signals."""
        said = member.log.with_suffix(".stderr")
        eventually(
            lambda: '"running"' in said.read_text() or member.process.poll() is not None,
            timeout,
            self.errors,
        )
        member.process.send_signal(signal.SIGTERM)
        return member.process.wait(timeout)

    def errors(self) -> str:
        return "\n".join(
            f"--- {m.instance}\n" + m.log.with_suffix(".stderr").read_text()[-3000:]
            for m in self.members
        )

    def delivered(self) -> int:
        return sum(
            len(line["records"])
            for member in self.members
            for line in member.lines()
            if line["what"] == "delivered"
        )

    # Load

    def produce(self, count: int) -> None:
        for n in range(count):
            self._producer.produce(
                self.topic, b"{}", key=str(n), headers=[("ce_id", b"x"), ("ce_type", b"a.b")]
            )
            self._producer.poll(0)
        self.produced += count
        assert self._producer.flush(60) == 0

    def load(self, rate: float = 2000) -> None:
        """Produces about so many messages a second until `quiet`."""

        def run() -> None:
            while not self._producing.is_set():
                self.produce(int(rate / 20))
                self._producing.wait(0.05)

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def quiet(self) -> None:
        self._producing.set()
        if self._thread is not None:
            self._thread.join(60)

    def rage(self, seconds: float, seed: int) -> Counter[str]:
        """Lets members join, leave and die in turns for a while; two to four are there."""
        chance, happened = random.Random(seed), Counter[str]()
        end = time.monotonic() + seconds
        turns: list[str] = []
        while time.monotonic() < end or len(happened) < 3:
            alive = self.alive()
            if not turns:
                turns = ["join", "kill", "leave"]
                chance.shuffle(turns)
            what = "join" if len(alive) < 2 else turns.pop()
            if what == "join" and len(alive) < 4:
                self.start()
            elif what == "kill":
                self.kill(chance.choice(alive))
            else:
                what = "leave"
                leaving = chance.choice(alive)
                begun = '"running"' in leaving.log.with_suffix(".stderr").read_text()
                # 3 where a broker that is away kept it from leaving the group; the signal's own
                # end where it had not even begun to listen.
                ends = (0, 3) if begun else (0, 3, -signal.SIGTERM)
                assert self.stop(leaving) in ends, self.errors()
            happened[what] += 1
            time.sleep(chance.uniform(0.3, 1.0))  # the pace of the storm, no synchronisation
        return happened

    # Books

    def _client(self) -> Consumer:
        return Consumer({"bootstrap.servers": self.kafka, "group.id": self.group})

    def ends(self) -> dict[int, int]:
        client = self._client()
        try:
            partitions = client.list_topics(self.topic, timeout=60).topics[self.topic].partitions
            return {
                p: client.get_watermark_offsets(TopicPartition(self.topic, p), timeout=60)[1]
                for p in partitions
            }
        finally:
            client.close()

    def wait_until_committed(self, timeout: float = 90) -> None:
        """Waits until the group's offsets are the partitions' ends."""
        ends = self.ends()
        client = self._client()
        wanted = [TopicPartition(self.topic, p) for p, end in ends.items() if end]
        try:
            eventually(
                lambda: all(
                    p.offset == ends[p.partition] for p in client.committed(wanted, timeout=60)
                ),
                timeout,
                self.errors,
            )
        finally:
            client.close()

    def books(self) -> Books:
        dispatched: dict[tuple[int, int], list[str]] = {}
        dropped: Counter[str] = Counter()
        for member in self.members:
            for line in member.lines():
                if line["what"] == "delivered":
                    for partition, offset in line["records"]:
                        dispatched.setdefault((partition, offset), []).append(member.instance)
                elif line["what"] == "dropped" and line["cause"] not in ("revoked", "stopping"):
                    dropped[line["cause"]] += line["n"]
        return Books(
            dispatched,
            landed(self.kafka, self.group, self.topic),
            self.ends(),
            {member.instance for member in self.members if member.killed},
            dropped,
        )

    def end(self) -> None:
        self.quiet()
        for member in self.alive():
            member.process.kill()
            member.process.wait()


def check(books: Books) -> None:
    """The invariants of the commit-first protocol."""
    assert not books.backwards(), books.backwards()[:5]
    assert not books.twice, list(books.twice.items())[:5]
    assert not books.uncovered(), books.uncovered()[:5]
    assert not books.unexplained(), sorted(books.unexplained())[:5]
