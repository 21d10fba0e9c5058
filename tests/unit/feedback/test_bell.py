"""What wakes threads, and the locks around it: signal handlers that raise leave none held."""

from __future__ import annotations

import threading

import pytest

from feedback.bell import Bell
from tests.unit.feedback.client.test_interrupted import ALARMED, run

IMPORTS = """
from feedback.client.waiter import StatusWaiter, ThreadWatch
from feedback.status.sender import StatusSender
"""
LOOP = """
signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
late = 0
while late < 3000:
    try:
        act()
    except Late:
        late += 1
signal.setitimer(signal.ITIMER_REAL, 0)
other = threading.Thread(target=act, daemon=True)
other.start()
other.join(10)
print(other.is_alive())
os._exit(0)
"""
ACTS = {
    "a wait": """
watch = ThreadWatch("a")
def act():
    for _ in range(20):
        watch.wake()
        watch.wait(0.0)
""",
    "all waits": """
waits = StatusWaiter(store, None)
def act():
    for _ in range(20):
        waits.wake("a")
""",
    "hints": """
waits = StatusWaiter(store, "c")
waits.close()
def act():
    for _ in range(20):
        waits.listening = False
        waits.listen(0.0)
""",
    "room for messages": """
client = Client(NOWHERE, store, "t", hints=False)
def act():
    for _ in range(20):
        with client._deliveries.told_of_room(id):
            pass
""",
    "statuses to send": """
sender = StatusSender(store)
def act():
    for _ in range(20):
        sender.stats()
""",
    "a read of a task": """
import asyncio
from feedback.client.shared_reads import SharedReads
reads = SharedReads(lambda ids: [None] * len(ids))
asyncio.run(reads.read(["a"]))
loop = asyncio.new_event_loop()
def act():
    if threading.current_thread() is not threading.main_thread():
        return asyncio.run(reads.read(["a"]))
    asyncio._set_running_loop(loop)
    for _ in range(20):
        asking = reads.read(["a"])
        asking.send(None)
        asking.close()
""",
}


@pytest.mark.parametrize("act", ACTS)
def test_other_threads_go_on_however_often_the_main_one_was_interrupted(act: str) -> None:
    assert run(IMPORTS + ACTS[act] + ALARMED + LOOP) == "False\n"


def test_what_rang_before_the_wait_wakes_it_once() -> None:
    bell = Bell()
    bell.ring()
    bell.ring()
    bell.wait(threading.TIMEOUT_MAX * 2)
    bell.wait(-1.0)
    assert bell._silent.locked()


LONG_HANDLER = """
from feedback.bell import Bell
from feedback.errors import DeliveryPending, WaitTimeout

def handle(*_):
    eventually(lambda: time.monotonic() > over)

signal.signal(signal.SIGALRM, handle)
over = time.monotonic() + 0.5
signal.setitimer(signal.ITIMER_REAL, 0.01)
"""
WAITS = {
    "a bell": "Bell().wait(0.2)\n",
    "a client": """
try:
    Client(NOWHERE, store, "t", hints=False).wait("nobody", 0.2)
except WaitTimeout:
    pass
""",
    "a flush": """
client = Client(NOWHERE, store, "t", hints=False)
client.submit("pay", {})
over = time.monotonic() + 0.5
signal.setitimer(signal.ITIMER_REAL, 0.01)
try:
    client.flush(0.2)
except DeliveryPending:
    pass
""",
}


@pytest.mark.parametrize("wait", WAITS)
def test_a_wait_ends_though_a_signal_handler_outlasts_it(wait: str) -> None:
    run(LONG_HANDLER + WAITS[wait] + "print('ended')\nos._exit(0)\n")


def test_it_wakes_a_thread_that_waits() -> None:
    bell = Bell()
    waiting = threading.Thread(target=bell.wait, args=(60.0,))
    waiting.start()
    bell.ring()
    waiting.join(30)
    assert not waiting.is_alive()
