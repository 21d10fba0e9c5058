"""What the coordinator of a group is asked, in ways that outlive it.

librdkafka 2.16 aborts its process where an administrative question to a coordinator loses its
connection (https://github.com/confluentinc/librdkafka/issues/4605). So a consumer asks for
committed offsets, and a process of its own for members: `python -m ... BOOTSTRAP GROUP`.
"""

from __future__ import annotations

import subprocess
import sys

import orjson
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

TIMEOUT = 10.0


def committed(bootstrap: str, group: str, spots: list[TopicPartition]) -> list[TopicPartition]:
    """With offset and metadata each. Raises KafkaException where nobody answers."""
    asks = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer({**asks, "log_level": 0})
    try:
        return consumer.committed(spots, timeout=TIMEOUT)
    finally:
        consumer.close()


def partitions_given(bootstrap: str, group: str) -> set[int]:
    """Numbers of the partitions that members have; none where that can't be learnt now."""
    ask = [sys.executable, "-m", "tests.chaos.real.coordinator", bootstrap, group]
    told = subprocess.run(ask, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return set(orjson.loads(told.stdout)) if told.returncode == 0 else set()


def main() -> None:
    """Prints what `partitions_given` returns."""
    bootstrap, group = sys.argv[1:]
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    told = admin.describe_consumer_groups([group])[group].result(TIMEOUT)
    spots = [spot.partition for m in told.members for spot in m.assignment.topic_partitions]
    sys.stdout.write(orjson.dumps(spots).decode())


if __name__ == "__main__":
    main()
