"""What befalls a process from inside, at a point that the test has named."""

from __future__ import annotations

import ctypes
import os
import signal
import time


def do(harm: str) -> None:
    """Does it; most harms do not return."""
    match harm.split():
        case ["kill"]:
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)
        case ["segfault"]:
            ctypes.string_at(0)
        case ["eat"]:
            kept = []
            while True:
                kept.append(bytearray(16 * 2**20))
        case ["hold", seconds]:
            # Called with the GIL held: no other thread of this process runs meanwhile.
            ctypes.PyDLL(None).usleep(int(float(seconds) * 1e6))
        case ["hang"]:
            time.sleep(3600)
        case ["wait", seconds]:
            time.sleep(float(seconds))
        case _:
            raise AssertionError(f"no such harm: {harm}")
