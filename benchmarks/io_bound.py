"""Whether workers are kept busy by handlers that wait for something else.

    scripts/bench io_bound [--quick] [--rounds N] [--workers N] [--case NAME] [--against REV]

Handlers that wait 10 and 100 ms, with 8 workers on however few cores, against as many bare
processes that wait as long in a loop. Handlers count: see benchmarks/tally.py.
"""

from __future__ import annotations

from benchmarks.contest import Case, Contest
from benchmarks.cpu_bound import SIDES

CONTEST = Contest(
    "io_bound",
    __doc__,
    {"10 ms": Case("bench.io.10", 16_000), "100 ms": Case("bench.io.100", 2_400)},
    SIDES,
    rounds=5,
    workers=8,
)

if __name__ == "__main__":
    CONTEST.main()
