"""A process that leaks is found by what judges a soak, from looks at it as a soak takes them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from stack import Stack
from tests.chaos.real.resources import Sample, look
from tests.chaos.soak.flat import judged, rising

LOOKS = 60
EVERY = 0.1
WORK = """
import socket, sys, threading, time
leak, port = sys.argv[1], int(sys.argv[2])
kept = [socket.create_connection(("127.0.0.1", port))]
print("ready", flush=True)
for number in range(10_000):
    garbage = [bytearray(1000) for _ in range(200)]
    if leak == "memory":
        kept.append(b"x" * 400_000)
    elif leak == "descriptor" and number % 4 == 0:
        kept.append(open("/dev/null"))
    elif leak == "thread" and number % 4 == 0:
        threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
    elif leak == "connection" and number % 4 == 0:
        kept.append(socket.create_connection(("127.0.0.1", port)))
    time.sleep(0.1)
"""
FOUND = {
    "memory": {"uss", "rss"},
    "descriptor": {"descriptors"},
    "thread": {"threads"},
    "connection": {"valkey connections", "descriptors"},
    "nothing": set[str](),
}
"""What has to rise, and nothing else may."""


@pytest.fixture
def leaking(stack: Stack) -> Iterator[list[subprocess.Popen[bytes]]]:
    """One process for each leak, in the order of FOUND, all of which are connected to Valkey."""
    port = stack.redis.rpartition(":")[2].partition("/")[0]
    made = [
        subprocess.Popen([sys.executable, "-c", WORK, leak, port], stdout=subprocess.PIPE)
        for leak in FOUND
    ]
    for one in made:
        assert one.stdout is not None
        assert one.stdout.readline() == b"ready\n"
    yield made
    for one in made:
        one.kill()
        one.wait(30)


@pytest.mark.long
def test_each_leak_of_a_real_process_is_found_and_nothing_else(
    stack: Stack, leaking: list[subprocess.Popen[bytes]]
) -> None:
    mains = {number: one.pid for number, one in enumerate(leaking)}
    services = {int(stack.redis.rpartition(":")[2].partition("/")[0]): "valkey"}
    samples: list[Sample] = []
    for _ in range(LOOKS):
        samples.append(look(mains, services))
        time.sleep(EVERY)  # how often a soak looks, only faster: as fast as these leak
    assert all(len(sample.held) == len(FOUND) for sample in samples)

    found = judged(samples, len(FOUND), 0)
    for number, (leak, expected) in enumerate(FOUND.items()):
        mine = [one for one in found if one.who == f"main {number}"]
        assert {one.what for one in mine} >= {"uss", "rss", "descriptors", "threads"}, leak
        assert {one.what for one in mine if not one.flat} == expected, (leak, rising(mine))
