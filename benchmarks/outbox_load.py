"""A producer that adds requests to an outbox with a steady load.

    python -m benchmarks.outbox_load RATE

Adds RATE requests a second, by the clock, in transactions of what is due every 10 ms, until
SIGTERM. The outbox is that of ONCEPOOL_OUTBOX_DATABASE_URL.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import psycopg

from benchmarks.outbox_place import PAYLOAD
from feedback import outbox

_TICK = 0.01
_MOST = 1_000
"""In a transaction: what the database does not take in time is not made up for at once."""


def main() -> None:
    rate = float(sys.argv[1])
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    with psycopg.connect(os.environ["ONCEPOOL_OUTBOX_DATABASE_URL"], autocommit=True) as connection:
        begun, added = time.monotonic(), 0
        while not ended:
            due = min(int((time.monotonic() - begun) * rate) - added, _MOST)
            if due > 0:
                many: list[Any] = [
                    ("bench", PAYLOAD, {"key": f"k{(added + n) % 1000}"}) for n in range(due)
                ]
                outbox.add_many(connection, many)
                added += due
            time.sleep(_TICK)


if __name__ == "__main__":
    main()
