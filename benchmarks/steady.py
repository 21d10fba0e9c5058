"""A producer with a steady load.

    python -m benchmarks.steady TYPE RATE

Sends RATE requests a second to TOPIC at KAFKA, by the clock, until SIGTERM, and counts them: see
benchmarks/tally.py.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import uuid

from confluent_kafka import Producer

from benchmarks.load import PAYLOAD
from benchmarks.tally import Tally

TICK = 0.005


def main() -> None:
    kind, rate = sys.argv[1].encode(), float(sys.argv[2])
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    producer = Producer({"bootstrap.servers": os.environ["KAFKA"], "linger.ms": 5})
    tally = Tally()
    begun, sent = time.monotonic(), 0
    while not ended:
        # By the clock, so that a moment without a CPU is made up for.
        while sent < (time.monotonic() - begun) * rate:
            key = str(uuid.uuid4()).encode()
            try:
                producer.produce(
                    os.environ["TOPIC"], PAYLOAD, key, headers=[("ce_id", key), ("ce_type", kind)]
                )
            except BufferError:
                break  # the broker does not take so much: the load is what it takes
            sent += 1
            tally.add()
        producer.poll(0)
        time.sleep(TICK)
    producer.flush(10)


if __name__ == "__main__":
    main()
