"""Whether a group is at rest, so that no rebalance falls into what is measured, and keeps up.

A member of a classic group hears of one that joins with its next heartbeat, and with cooperative
assignors a partition moves in two rebalances: seconds in which some partitions have nobody, or one
member has them all.
"""

from __future__ import annotations

import subprocess
import sys
import time
from subprocess import Popen

import orjson
from confluent_kafka import Consumer, ConsumerGroupState, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from benchmarks.load import PARTITIONS

LONGEST = 60.0
PAUSE = 0.05
ANSWER = 10.0
"""Seconds that a coordinator has for its answer."""


def until_shared_out(kafka: str, group: str, *members: Popen[bytes]) -> None:
    """Returns when each member has its part.

    Raises RuntimeError where one ends, or it takes longer than LONGEST.
    """
    end = time.monotonic() + LONGEST
    while shares(kafka, group) != shares_of(len(members)):
        if any(member.poll() is not None for member in members):
            raise RuntimeError("a member of the group has ended")
        if time.monotonic() > end:
            raise RuntimeError(f"partitions were not shared out in {LONGEST:g} s")
        time.sleep(PAUSE)


def behind(kafka: str, group: str, topic: str) -> int:
    """Messages of a topic that a group has not committed yet."""
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": group})
    try:
        places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        committed = [max(0, place.offset) for place in consumer.committed(places, timeout=10)]
        ends = [consumer.get_watermark_offsets(place, timeout=10)[1] for place in places]
    finally:
        consumer.close()
    return sum(ends) - sum(committed)


def shares_of(members: int) -> list[int]:
    """Partitions of each, ascending, where they are shared evenly."""
    return sorted((PARTITIONS + number) // members for number in range(members))


def shares(kafka: str, group: str) -> list[int]:
    """Partitions of each member, ascending; none where the group is not at rest or nobody says."""
    ask = [sys.executable, "-m", "benchmarks.membership", kafka, group]
    told = subprocess.run(ask, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return list(orjson.loads(told.stdout)) if told.returncode == 0 else []


def main() -> None:
    kafka, group = sys.argv[1:]
    admin = AdminClient({"bootstrap.servers": kafka, "log_level": 0})
    try:
        found = admin.describe_consumer_groups([group])[group].result(ANSWER)
    except KafkaException:  # nobody has joined it yet
        sys.exit(1)
    members = found.members if found.state == ConsumerGroupState.STABLE else []
    numbers = sorted(len(member.assignment.topic_partitions) for member in members)
    sys.stdout.write(orjson.dumps(numbers).decode())


if __name__ == "__main__":
    main()
