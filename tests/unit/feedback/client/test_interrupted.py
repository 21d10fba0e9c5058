"""Calls that a signal handler, or a callback of the Kafka client, interrupts: a process for each.

Their producers and consumers are real, and their brokers librdkafka's own, or none.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
COMMON = """
import faulthandler, linecache, logging, os, signal, sys, threading, time
import orjson
from confluent_kafka import KafkaException, Producer
from feedback import Client, ClientClosed, DeliveryFailed
from feedback.client.results import Results
from feedback.status.memory_store import MemoryStatusStore
from tests.support.mock_brokers import PLACE, MockBrokers
from tests.support.waiting import eventually

faulthandler.dump_traceback_later(30, exit=True)
logging.disable(logging.CRITICAL)
store = MemoryStatusStore()
NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}
"""
ALARMED = """
class Late(Exception): ...

def raising(_, frame):
    while frame is not None:
        if frame.f_code is act.__code__:
            raise Late
        frame = frame.f_back

signal.signal(signal.SIGALRM, raising)
"""
"""From here on an alarm interrupts what `act` does, and nothing else."""


def run(program: str, *arguments: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", COMMON + program, *arguments],
        capture_output=True, text=True, timeout=120, check=False, cwd=ROOT,
    )  # fmt: skip
    assert ended.returncode == 0, (ended.returncode, ended.stdout, ended.stderr[-2000:])
    return ended.stdout


def test_a_client_that_is_closed_in_the_middle_of_a_send_sends() -> None:
    program = """
class Interrupted(Producer):
    def produce(self, *arguments, **named):
        signal.raise_signal(signal.SIGTERM)
        super().produce(*arguments, **named)

brokers = MockBrokers()
signal.signal(signal.SIGTERM, lambda *_: client.close())
with Client(Interrupted({"bootstrap.servers": brokers.servers}), store, PLACE[0]) as client:
    sent = client.submit("t", 1)
    try:
        client.submit("t", 2)
    except ClientClosed:
        print("closed")
print(store.read([sent])[0].state)
"""
    assert run(program) == "closed\naccepted\n"


def test_a_report_in_the_middle_of_which_a_signal_comes_is_handed_on() -> None:
    """Its handler raises, while the main thread flushes."""
    program = """
class Late(Exception): ...

class Signalled(Producer):
    def produce(self, *arguments, on_delivery, **named):
        def report(*told):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)
            on_delivery(*told)
        super().produce(*arguments, on_delivery=report, **named)

def raising(_, frame):
    while frame is not None:
        if frame.f_code.co_name == "flush":
            raise Late
        frame = frame.f_back

brokers = MockBrokers()
signal.signal(signal.SIGALRM, raising)
kafka = {"bootstrap.servers": brokers.servers, "linger.ms": 5000, "batch.num.messages": 1}
client = Client(Signalled(kafka), store, PLACE[0], hints=False)
sent, late = [], 0
for _ in range(5):
    sent += [client.submit("t", n) for n in range(50)]
    try:
        client.flush(20)
    except Late:
        late += 1
signal.signal(signal.SIGALRM, signal.SIG_IGN)
client.close()
print(late > 0, [one for one in sent if store.read([one])[0] is None])
"""
    assert run(program) == "True []\n"


def test_a_wait_ends_whose_own_thread_closes_the_client() -> None:
    program = """
signal.signal(signal.SIGTERM, lambda *_: client.close())
client = Client(NOWHERE, store, "t", hints=False)

def interrupt():
    eventually(lambda: client._waits._watches)
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=interrupt).start()
try:
    client.wait("a", 60)
except ClientClosed:
    client.close()
    print([one.name for one in threading.enumerate() if one.name in ("waits", "deliveries")])
"""
    assert run(program) == "[]\n"


def test_waits_that_a_signal_handler_ends_are_not_read_for_any_more() -> None:
    """Wherever it comes, also where they begin and end."""
    program = (
        """
import random
from feedback import WaitTimeout

def act(n):
    try:
        client.wait(f"{n}", 0.0)
    except WaitTimeout:
        pass

client = Client(NOWHERE, store, "t", hints=False)
start = time.perf_counter()
for n in range(50):
    act(n)
usual = (time.perf_counter() - start) / 50
chance = random.Random(11)
"""
        + ALARMED
        + """
interrupted, end = 0, time.monotonic() + 5
while interrupted < 3000 and time.monotonic() < end:
    signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, usual))
    try:
        act(interrupted)
    except Late:
        interrupted += 1
signal.setitimer(signal.ITIMER_REAL, 0)
waits = client._waits
eventually(lambda: not waits._watches and waits._schedule.pause(0.0) is None)
client.close(1)
print(interrupted > 100)
"""
    )
    assert run(program) == "True\n"


def test_a_callback_is_refused_what_would_end_the_process() -> None:
    program = """
told = threading.Event()

def trouble(_):
    for call in (client.flush, client._deliveries.close):
        try:
            call(0.01)
        except RuntimeError as error:
            print(error)
    told.set()

client = Client(NOWHERE | {"error_cb": lambda error: told.is_set() or trouble(error)}, store, "t")
client.submit("t", 1)
assert told.wait(20)
try:
    client.close(0.1)
except DeliveryFailed:
    print("closed")
"""
    said = "not inside a callback of the Kafka client, nor in a signal handler that interrupts a"
    assert run(program) == f"{said} call\n{said} call\nclosed\n"


def test_a_callback_may_close_the_client() -> None:
    program = """
sent = threading.Event()
properties = NOWHERE | {"error_cb": lambda _: sent.wait(20) and client.close(0.1)}
client = Client(properties, store, "t", hints=False)
serving = client._deliveries._thread
request_id = client.submit("t", 1)
sent.set()
try:
    client.wait(request_id, 60)
except ClientClosed:
    try:
        client.close()
    except DeliveryFailed:
        print("failed")
print(serving.is_alive())
"""
    assert run(program) == "failed\nFalse\n"


RAISING = """
told = threading.Event()

def trouble(error):
    told.set()
    raise eval(sys.argv[1])

def figures(_):
    raise ValueError

kafka = NOWHERE | {"error_cb": trouble, "stats_cb": figures, "statistics.interval.ms": 50}
client = Client(kafka, store, "t", hints=False, delivery_timeout=1.5)
serving = client._deliveries._thread
sent = client.submit("t", 1)
assert told.wait(20)
try:
    client.wait(sent, 20)
except DeliveryFailed:
    print("failed")
print(serving.is_alive())
"""


@pytest.mark.parametrize("raised", ["KafkaException(error)", "SystemExit(1)", "ValueError()"])
def test_what_a_callback_raises_ends_no_delivery(raised: str) -> None:
    assert run(RAISING, raised) == "failed\nTrue\n"


def test_a_client_whose_callbacks_raise_is_closed() -> None:
    program = """
client.submit("t", 2)
try:
    client.close(10)
except DeliveryFailed:
    print("failed")
print(serving.is_alive())
"""
    assert run(RAISING + program, "KafkaException(error)") == "failed\nTrue\nfailed\nFalse\n"


@pytest.mark.parametrize("group", ["", "some"])
def test_a_reader_whose_wait_a_signal_ends_skips_nothing(group: str) -> None:
    program = """
class Late(Exception): ...

def raising(_, frame):
    global late
    late += 1
    if "_consumer.poll(" in linecache.getline(frame.f_code.co_filename, frame.f_lineno):
        raise Late

def record(n):
    return orjson.dumps({"id": str(n), "type": "t", "state": "done", "code": "ok",
                         "at": "2026-01-01T00:00:00Z"})

brokers = MockBrokers()
brokers.write([record(0)])
kafka = {"bootstrap.servers": brokers.servers}
reading = Results(kafka, PLACE[0], sys.argv[1] or None, from_beginning=True, closed=lambda _: None)
while reading.poll(1) is None:
    pass
signal.signal(signal.SIGALRM, raising)
seen = [0]

def write():
    for n in range(1, 41):
        brokers.write([record(n)])
        os.kill(os.getpid(), signal.SIGALRM)
        eventually(lambda: late >= n, 20)

late = raised = 0
writing = threading.Thread(target=write)
writing.start()
quiet = 0
while writing.is_alive() or quiet < 10:
    try:
        result = reading.poll(0.1)
    except Late:
        raised += 1
        continue
    quiet = 0 if result else quiet + 1
    if result:
        seen.append(int(result.id))
signal.signal(signal.SIGALRM, signal.SIG_IGN)
reading.close()
print(raised > 0, sorted(set(range(41)) - set(seen)))
"""
    assert run(program, group) == "True []\n"


@pytest.mark.parametrize("group", ["", "some"])
@pytest.mark.parametrize("where", ["message", "decode", "lock"])
def test_a_record_that_a_signal_handler_meets_before_it_is_given_out_comes_again(
    group: str, where: str
) -> None:
    """The third one; what was given out before does not."""
    program = """
from feedback.broker_probe import BrokerProbe
from feedback.client import result

class Late(Exception): ...

def raising(*_):
    raise Late

def interrupt():
    global came
    came += 1
    if came == 3:
        signal.raise_signal(signal.SIGALRM)

def interrupted(call):
    def calls(*arguments):
        interrupt()
        return call(*arguments)
    return calls

class Lock:
    def __enter__(self):
        lock.acquire()

    def __exit__(self, *_):
        lock.release()
        if reading._last is not None:
            interrupt()

def record(n):
    return orjson.dumps({"id": str(n), "type": "t", "state": "done", "code": "ok",
                         "at": "2026-01-01T00:00:00Z"})

brokers = MockBrokers()
brokers.write([record(n) for n in range(6)])
kafka = {"bootstrap.servers": brokers.servers}
group, where = sys.argv[1:]
reading = Results(kafka, PLACE[0], group or None, from_beginning=True, closed=lambda _: None)
signal.signal(signal.SIGALRM, raising)
seen, came, late, lock = [], 0, 0, reading._lock
if where == "message":
    BrokerProbe.heard_from = interrupted(BrokerProbe.heard_from)
elif where == "decode":
    result.parse_json = interrupted(result.parse_json)
else:
    reading._lock = Lock()
while len(seen) < 6:
    try:
        seen.append(int(next(reading).id))
    except Late:
        late += 1
reading._lock = lock
reading.close()
print(late, seen)
"""
    assert run(program, group, where) == "1 [0, 1, 2, 3, 4, 5]\n"


RECORD = """
brokers = MockBrokers()
fields = {"id": "r", "type": "t", "state": "done", "code": "ok", "at": "2026-01-01T00:00:00Z"}
brokers.write([orjson.dumps(fields)])
closes = threading.Event()
def figures(_):
    if closes.is_set():
        close()
kafka = {"bootstrap.servers": brokers.servers, "statistics.interval.ms": 30, "stats_cb": figures}
"""


@pytest.mark.parametrize("first", ["pass", "results.close()"])
def test_callbacks_of_two_threads_may_close_a_client_and_its_reader(first: str) -> None:
    """Those of its producer and of the reader: in an outage both are told."""
    program = f"""{RECORD}
def close():
    {first}
    client.close(1)

with Client(kafka, store, PLACE[0], hints=False, results_topic=PLACE[0]) as client:
    results = client.results(from_beginning=True)
    for result in results:
        print(result.id)
        closes.set()
"""
    assert run(program) == "r\n"


def test_callbacks_of_two_readers_may_close_both() -> None:
    program = f"""{RECORD}
def close():
    for reader in readers:
        reader.close()

readers = [
    Results(kafka, PLACE[0], None, from_beginning=True, closed=lambda _: None) for _ in range(2)
]
threads = [threading.Thread(target=lambda one=one: list(one)) for one in readers]
for thread in threads:
    thread.start()
closes.set()
for thread in threads:
    thread.join()
print([one.closed for one in readers])
"""
    assert run(program) == "[True, True]\n"
