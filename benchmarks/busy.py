"""Work of a known length: on the CPU, or waiting. The same for Oncepool's handlers and bare loops.

    python -m benchmarks.busy HANDLER COUNT WARM

does WARM pieces of a handler's work, and COUNT when it is told to, and waits for its end (see
benchmarks/signalled.py): a process without Kafka, queue or journal, which is what nothing can be
better than on the same cores.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

from benchmarks import signalled
from benchmarks.tally import Tally

MIXED = (1,) * 100 + (10,) * 10 + (100,)
"""Milliseconds of the mixed type, in turns: each length takes a third of the time."""


def burn(milliseconds: float) -> None:
    """Uses so much CPU of this thread."""
    end = time.thread_time() + milliseconds / 1000
    while time.thread_time() < end:
        sum(range(500))


def rest(milliseconds: float) -> None:
    """Waits so long."""
    time.sleep(milliseconds / 1000)


def burn_mixed(number: int) -> int:
    """The piece of that number in its process; returns its milliseconds."""
    milliseconds = MIXED[number * 50 % len(MIXED)]
    burn(milliseconds)
    return milliseconds


PIECES: dict[str, Callable[[], None]] = {
    **{f"bench.cpu.{ms}": partial(burn, ms) for ms in (1, 10, 100, 1000)},
    **{f"bench.io.{ms}": partial(rest, ms) for ms in (10, 100)},
}


def main() -> None:
    signalled.expect()
    handler, count, warm = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    tally = Tally(step=1)
    work(handler, warm, tally)
    signalled.wait_to_begin()
    work(handler, count, tally)
    signalled.wait_to_end()


def work(handler: str, count: int, tally: Tally) -> None:
    """So many pieces."""
    for number in range(count):
        if handler == "bench.cpu.mixed":
            tally.add(each=burn_mixed(number))
        else:
            PIECES[handler]()
            tally.add()


if __name__ == "__main__":
    main()
