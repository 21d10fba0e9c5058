"""Which share of the CPU that there is do handlers get that compute.

    scripts/bench cpu_bound [--quick] [--rounds N] [--workers N] [--case NAME] [--against REV]

Handlers that use 1, 10 and 100 ms of CPU, and a mixture of them in which each length takes a third
of the time, against as many bare processes that do the same in a loop. Broker, database and Redis
are on the same cores, and a share of 1 means that all else cost nothing. The mixture is counted in
milliseconds of work. Handlers count: see benchmarks/tally.py.
"""

from __future__ import annotations

from benchmarks.contenders import TALLIED, Contender
from benchmarks.contest import Case, Contest

SIDES = (
    Contender("Oncepool", table=TALLIED, app="benchmarks.busy_app:app"),
    Contender(
        "bare processes", ("benchmarks.busy", "HANDLER", "COUNT", "WARM"), TALLIED, reads=False
    ),
)
CONTEST = Contest(
    "cpu_bound",
    __doc__,
    {
        "1 ms": Case("bench.cpu.1", 20_000),
        "10 ms": Case("bench.cpu.10", 3_000),
        "100 ms": Case("bench.cpu.100", 400),
        "mixed": Case("bench.cpu.mixed", 11_100),
    },
    SIDES,
    rounds=5,
    unit="units of work",
)

if __name__ == "__main__":
    CONTEST.main()
