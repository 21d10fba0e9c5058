"""A long storm of joining, leaving and killed consumers, with broker faults if wanted.

    python -m tests.chaos.consumer_storm --protocol consumer --seconds 120 --faults

Ends with the books of the run, and with exit code 1 where they don't balance.
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
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from stack import Stack
from tests.support import run
from tests.support.storm import Storm, check

PROTOCOLS = {
    "range": {"kafka_protocol": "classic", "kafka_assignor": "range", "kafka_session_timeout": 6},
    "cooperative-sticky": {"kafka_protocol": "classic", "kafka_session_timeout": 6},
    "consumer": {"kafka_protocol": "consumer"},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--protocol", choices=PROTOCOLS, default="consumer")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--faults", action="store_true", help="kill and pause the broker as well")
    options = parser.parse_args()
    run.begin()
    try:
        return storm(run.own_stack("storm"), options)
    finally:
        run.end()


def storm(stack: Stack, options: argparse.Namespace) -> int:
    topic = f"storm-{uuid.uuid4().hex[:8]}"
    wanted = NewTopic(topic, num_partitions=6)
    admin = AdminClient({"bootstrap.servers": stack.kafka})
    admin.create_topics([wanted])[topic].result(30)
    impatient = {"kafka_properties": {"socket.timeout.ms": 2000}} if options.faults else {}
    settings = PROTOCOLS[options.protocol] | impatient
    with tempfile.TemporaryDirectory() as folder:
        made = Storm(stack.kafka, topic, topic, Path(folder), settings)
        try:
            made.load()
            for _ in range(3):
                made.start()
            stop = threading.Event()
            breaker = threading.Thread(target=faults, args=(stack, stop, options.seed))
            if options.faults:
                breaker.start()
            happened = made.rage(options.seconds, options.seed)
            stop.set()
            if options.faults:
                breaker.join()
            stack.heal()
            made.quiet()
            if not made.alive():
                made.start()
            made.wait_until_committed(90)
            for member in made.alive():
                made.stop(member)
            return tell(made, happened, options)
        finally:
            made.end()


def faults(stack: Stack, stop: threading.Event, seed: int) -> None:
    chance = random.Random(seed)
    while not stop.wait(chance.uniform(4, 10)):
        if chance.random() < 0.5:
            stack.pause_broker()
            stop.wait(chance.uniform(1, 5))
            stack.resume_broker()
        else:
            stack.stop_broker(kill=True)
            stop.wait(chance.uniform(0, 3))
            stack.start_broker()


def tell(made: Storm, happened: Counter[str], options: argparse.Namespace) -> int:
    books = made.books()
    counts: Counter[str] = Counter()
    for member in made.members:
        for line in member.lines():
            counts.update(line["counts"] if line["what"] == "ended" else {})
    lines = [
        f"{options.protocol}, seed {options.seed}: {dict(happened)}",
        f"produced {made.produced}, run {len(books.dispatched)}, twice {len(books.twice)}",
        f"never {len(books.never)}, dropped {dict(books.dropped)}, commits {len(books.landed)}",
        str(dict(counts)),
    ]
    code = 0
    try:
        check(books)
    except AssertionError as error:
        lines.append(f"the books don't balance: {error}")
        code = 1
    sys.stdout.write("\n".join([*lines, ""]))
    return code


if __name__ == "__main__":
    raise SystemExit(main())
