"""What threads that borrow connections may rely on, whatever happens to one of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from feedback.errors import StoreUnavailable
from feedback.status.redis_connections import RedisConnections
from tests.support.descriptors import no_more_descriptors
from tests.support.private_valkey import PrivateValkey
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[4]
PROGRAM = """
import faulthandler, random, signal, sys, threading, time
from feedback.contract.states import State
from feedback.status.redis_store import RedisStatusStore
from tests.support.statuses import write

faulthandler.dump_traceback_later(30, exit=True)
store = RedisStatusStore(sys.argv[1], timeout=30.0, max_connections=4)
store.write([write(str(n), State.DONE) for n in range(100)])

class Late(Exception): ...

def raising(_, frame):
    while frame is not None:
        if frame.f_code is act.__code__:
            raise Late
        frame = frame.f_back

def act(n):
    one, other = str(n % 100), str(n * 7 % 100)
    store.write([write(one, State.DONE)])
    assert [status.id for status in store.read([one, other])] == [one, other]

def beside():
    while not over.is_set():
        assert store.read(["1"])[0].id == "1"
        over.wait(0.005)

over = threading.Event()
reader = threading.Thread(target=beside)
reader.start()
start = time.perf_counter()
for n in range(50):
    act(n)
usual = (time.perf_counter() - start) / 50
chance = random.Random(11)
signal.signal(signal.SIGALRM, raising)
interrupted, end = 0, time.monotonic() + 5
while interrupted < 3000 and time.monotonic() < end:
    signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, usual))
    try:
        act(interrupted)
    except Late:
        interrupted += 1
signal.setitimer(signal.ITIMER_REAL, 0)
for n in range(100):
    act(n)
over.set()
reader.join()
print(interrupted > 100)
"""
"""`act` is interrupted wherever it is; a second thread reads meanwhile."""
FORKS = """
import os, sys
import redis
from feedback.status.redis_connections import RedisConnections
from tests.contract.feedback.status.test_redis_connections import own_id

connections = RedisConnections(redis.ConnectionPool.from_url(sys.argv[1]), limit=1)
first = own_id(connections)
child = os.fork()
if not child:
    os._exit(int(own_id(connections) == first))
print(os.waitpid(child, 0)[1] == 0, own_id(connections) == first)
"""


@pytest.fixture
def connections(valkey: PrivateValkey) -> Iterator[RedisConnections]:
    made = RedisConnections(redis.ConnectionPool.from_url(valkey.url), limit=1, patience=0.1)
    yield made
    made.close()


def own_id(connections: RedisConnections) -> int:
    """The number that the server gave the connection."""
    with connections.lend() as connection:
        connection.send_command("CLIENT", "ID")
        number: int = connection.read_response()
        return number


def printed_by(program: str, valkey: PrivateValkey) -> str:
    """What it has printed once it has ended well."""
    ended = subprocess.run(
        [sys.executable, "-c", program, valkey.url],
        capture_output=True, text=True, timeout=120, check=False, cwd=ROOT,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended.stdout


def test_what_a_signal_handler_ends_costs_nobody_a_connection(valkey: PrivateValkey) -> None:
    """Whoever reads next has an answer, and its own."""
    assert printed_by(PROGRAM, valkey) == "True\n"


def test_an_exchange_that_was_interrupted_is_answered_to_nobody(
    connections: RedisConnections,
) -> None:
    first = own_id(connections)
    assert own_id(connections) == first

    def interrupted() -> None:
        with connections.lend() as connection:
            connection.send_command("ECHO", "the answer to another")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert own_id(connections) > first


def test_who_finds_none_is_told_after_a_while(connections: RedisConnections) -> None:
    with connections.lend(), pytest.raises(StoreUnavailable, match="all 1 connections"):
        own_id(connections)
    own_id(connections)


def test_without_a_file_left_it_is_away_and_nothing_is_lost(connections: RedisConnections) -> None:
    with no_more_descriptors(), pytest.raises(StoreUnavailable, match="Too many open files"):
        own_id(connections)
    own_id(connections)


def test_one_that_is_lost_on_its_way_counts_no_more(connections: RedisConnections) -> None:
    first = own_id(connections)
    assert connections._free.get_nowait() is not None
    assert own_id(connections) > first


def test_a_forked_process_has_its_own(valkey: PrivateValkey) -> None:
    """In a program of its own: what other tests leave in this one may not be forked."""
    assert printed_by(FORKS, valkey) == "True True\n"


def test_one_that_is_given_back_after_the_end_is_closed(
    connections: RedisConnections, valkey: PrivateValkey
) -> None:
    first = own_id(connections)
    with connections.lend():
        connections.close()
    with valkey.client() as client:
        eventually(lambda: str(first) not in [one["id"] for one in client.client_list()])


def test_one_that_the_server_closed_is_connected_anew(
    connections: RedisConnections, valkey: PrivateValkey
) -> None:
    first = own_id(connections)
    with valkey.client() as client:
        client.client_kill_filter(_id=first)
    assert own_id(connections) > first
