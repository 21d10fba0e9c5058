"""What befalls a process from inside, at a point that the test has named."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path

OUT_OF_MEMORY = "out-of-memory-{}"
"""A file in the folder of orders: the process of this pid had no memory left."""


def eat() -> None:
    """Takes memory until there is none, notes that, and fails of it."""
    kept, reserve = [], bytearray(2**20)
    try:
        while True:
            kept.append(bytearray(16 * 2**20))
    except MemoryError:
        reserve.clear()
        Path(os.environ["CHAOS_ORDERS"], OUT_OF_MEMORY.format(os.getpid())).touch()
        raise


def do(harm: str) -> None:
    """Does it; most harms do not return."""
    match harm.split():
        case ["kill"]:
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)
        case ["segfault"]:
            ctypes.string_at(0)
        case ["eat"]:
            eat()
        case ["hold", seconds]:
            # Called with the GIL held: no other thread of this process runs meanwhile.
            ctypes.PyDLL(None).usleep(int(float(seconds) * 1e6))
        case ["hang"]:
            time.sleep(3600)
        case ["wait", seconds]:
            time.sleep(float(seconds))
        case _:
            raise AssertionError(f"no such harm: {harm}")
