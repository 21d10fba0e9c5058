"""What is known after an episode, gathered from outside of the code under test."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from tests.chaos.real.coordinator import committed
from tests.chaos.real.faults import Struck
from tests.chaos.real.gateway_facts import GatewayFacts
from tests.chaos.real.order_facts import OrderFacts
from tests.chaos.real.pickled import Pickled
from tests.chaos.real.place import Place
from tests.chaos.real.producer import SendLedger
from tests.chaos.real.witness import WITHOUT_ROW, Heard
from tests.support.committed_offsets import Landed, landed

Spot = tuple[int, int]
"""Partition and offset."""
MALFORMED = "malformed"
"""Code of a `failed` that stands in no row, but beside a dead letter."""


class Row(NamedTuple):
    """A request as the journal has it."""

    id: str
    type: str
    state: str
    code: str
    resends: int
    partition: int
    offset: int
    run: int


class Effect(NamedTuple):
    """One row that a handler left, in the order in which they were made."""

    seq: int
    id: str
    key: str
    n: int
    type: str
    partition: int
    offset: int
    main: int


class Entry(NamedTuple):
    """One time that a handler was entered."""

    id: str
    partition: int
    offset: int
    main: int
    worker: int
    at: int = 0
    """Bytes of the log before it."""
    clock: float = 0.0
    """When, by the clock of the machine that nobody can set."""


class Status(NamedTuple):
    """What Redis says of a request."""

    state: str
    code: str
    run: int = 0
    has_row: bool = True
    """False where it says itself that no row of the journal stands behind it."""


@dataclass
class Facts(Pickled):
    """All that the checks look at."""

    ledger: SendLedger
    ordering: str
    rows: dict[str, Row]
    letters: list[tuple[Spot, str]]
    effects: list[Effect]
    charges: Counter[str]
    entries: list[Entry]
    commits: list[Landed]
    statuses: dict[str, Status]
    names: dict[int, str]
    """Of instances, by the pid of their main process."""
    how: dict[str, str]
    """How each instance ended under faults, by its name: killed, stopped, or "" where it lived."""
    read_again: list[tuple[int, int, int]] = field(default_factory=list)
    """Partition, first offset and the one behind the last of what was read again, as logs say."""
    heard: Heard = field(default_factory=Heard)
    struck: list[Struck] = field(default_factory=list)
    retried: set[str] = field(default_factory=set)
    """Ids of what was dead and the operator has retried."""
    failed_runs: Counter[str] = field(default_factory=Counter)
    """Runs of each id that failed, as the journal has them."""
    orders: OrderFacts | None = None
    """None: no orders in this episode."""
    gateway: GatewayFacts | None = None
    """None: no gateway in this episode."""
    left: list[str] = field(default_factory=list)
    """Processes and transactions that were there after the end."""
    ended_by_itself: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    """What the group had not finished of its topic in the end, in words."""
    lost_answers: set[str] = field(default_factory=set)
    """Requests whose call outside was made, and its answer lost."""
    stopped_at: dict[str, float] = field(default_factory=dict)
    """When each instance that was told to stop was told so, by the same clock as entries."""
    lead: float = 0.0
    """Seconds by which the time of day, which commits have, is ahead of that clock."""


def rows_of(place: Place, schema: str) -> dict[str, Row]:
    found = place.query(
        "SELECT id, type, state, code, resends, partition, kafka_offset, run"
        f" FROM {schema}.requests"
    )
    return {row[0]: Row(*row) for row in found}


def letters_of(place: Place, schema: str) -> list[tuple[Spot, str]]:
    found = place.query(f"SELECT partition, kafka_offset, reason FROM {schema}.dead_letters")
    return [((partition, offset), reason) for partition, offset, reason in found]


def effects_of(place: Place, schema: str) -> list[Effect]:
    found = place.query(
        "SELECT seq, id, key, n, type, partition, kafka_offset, main"
        f" FROM {schema}.effects ORDER BY seq"
    )
    return [Effect(*row) for row in found]


def failed_runs_of(place: Place, schema: str) -> Counter[str]:
    found = place.query(f"SELECT request_id, count(*) FROM {schema}.attempts GROUP BY request_id")
    return Counter(dict(found))


def size_of(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def entries_of(log: Path) -> list[Entry]:
    """In the order in which they were made."""
    found, at = [], 0
    for line in log.read_bytes().splitlines(keepends=True) if log.exists() else []:
        p = line.decode().split("\t")
        if len(p) == 7:
            found.append(Entry(p[0], int(p[1]), int(p[2]), int(p[3]), int(p[4]), at, float(p[5])))
        at += len(line)
    return found


def statuses_of(place: Place, prefix: str, ids: list[str]) -> dict[str, Status]:
    found: dict[str, Status] = {}
    with place.redis() as client:
        for start in range(0, len(ids), 1000):
            some = ids[start : start + 1000]
            values = client.mget([f"{prefix}:status:{name}" for name in some])
            for name, value in zip(some, values, strict=True):
                if value is not None:
                    status = json.loads(value)
                    without = status["code"] in WITHOUT_ROW | {MALFORMED}
                    has_row = status.get("journaled") is not False and not without
                    run = int(status["v"][:5])
                    found[name] = Status(status["state"], status["code"], run, has_row)
    return found


def unread_of(place: Place, name: str) -> list[str]:
    """What the group has not committed and finished of its topic, in words."""
    try:
        topic = place.admin.list_topics(name, timeout=10).topics[name]
        spots = [TopicPartition(name, partition) for partition in topic.partitions]
        told = committed(place.stack.kafka, name, spots)
        asked = place.admin.list_offsets({spot: OffsetSpec.latest() for spot in spots})
        ends = {spot.partition: result.result(10).offset for spot, result in asked.items()}
    except (KafkaException, TimeoutError) as error:
        return [f"nobody says how far it is: {error!r:.150}"]
    return unfinished(told, ends)


def unfinished(told: Sequence[TopicPartition], ends: Mapping[int, int]) -> list[str]:
    """What its marks and commits say is left of a topic that ends there. Pure."""
    return [
        f"partition {spot.partition}: finished up to {mark_of(spot.metadata)}, committed up to"
        f" {spot.offset}, of {end}"
        for spot in told
        if (end := ends[spot.partition]) and not end == spot.offset == mark_of(spot.metadata)
    ]


def mark_of(metadata: str | None) -> int:
    """The low mark in what a commit says; -1 where it says none."""
    parts = (metadata or "").rstrip("\0").split(";")
    return int(parts[2]) if len(parts) > 2 and parts[2].isdigit() else -1


def commits_of(place: Place, name: str) -> list[Landed]:
    return landed(place.stack.kafka, name, name)
