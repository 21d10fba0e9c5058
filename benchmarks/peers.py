"""Oncepool against the consumer of an afternoon, other frameworks, and other commits of itself.

    scripts/bench peers [--quick] [--rounds N] [--workers N] [--case NAME] [--own] [--against REV]

All sides find the same requests in a topic and do the same work: a row that keeps a second copy
from running, the handler's effect, a status in Redis. What has no worker processes runs in as many
processes as Oncepool has workers. A side that is tuned has what its project's documentation names
for speed (benchmarks/README.md has the links). The bare limit is the statements, rows and status
commands of Oncepool with no Kafka and nothing parsed or handed over. Sides take turns; each round
gives one ratio, and CPU per request of every process on the machine that has a part in it.
"""

from __future__ import annotations

from benchmarks.contenders import Contender
from benchmarks.contest import Case, Contest

COUNT = 150_000
SINGLE = ("bench.noop", "bench.insert")
ONE = ("bench.insert",)
AFTERNOON = "benchmarks.afternoon"
ARROYO, FASTSTREAM = "benchmarks.frameworks.arroyo_app", "benchmarks.frameworks.faststream_app"
SIDES = (
    Contender("Oncepool"),
    Contender("afternoon", (AFTERNOON, "HANDLER", "wait"), "plain"),
    Contender("Oncepool, pipeline", kind="bench.pipelined", handlers=ONE),
    Contender("afternoon, pipeline", (AFTERNOON, "HANDLER", "pipeline"), "plain", handlers=ONE),
    Contender("bare limit", ("benchmarks.bare_limit", "HANDLER", "COUNT", "WARM"), reads=False),
    Contender("FastStream, batch", (FASTSTREAM, "HANDLER", "batch"), "plain", framework=True),
    Contender("FastStream, tuned", (FASTSTREAM, "HANDLER", "tuned"), "plain", framework=True),
    Contender(
        "FastStream, max_workers", (FASTSTREAM, "HANDLER", "workers"), "plain",
        handlers=SINGLE, share=0.05, framework=True,
    ),
    Contender("arroyo, batch", (ARROYO, "HANDLER", "batch"), "plain", framework=True),
    Contender(
        "arroyo, message", (ARROYO, "HANDLER", "message"), "plain",
        handlers=SINGLE, share=0.08, framework=True,
    ),
    Contender(
        "DBOS", ("benchmarks.frameworks.dbos_app", "HANDLER"), "by_dbos",
        handlers=SINGLE, share=0.015, framework=True,
    ),
    Contender(
        "DBOS, tuned", ("benchmarks.frameworks.dbos_app", "HANDLER", "tuned"), "by_dbos",
        handlers=SINGLE, share=0.015, framework=True,
    ),
)  # fmt: skip
CONTEST = Contest(
    "peers",
    __doc__,
    {
        "no-op": Case("bench.noop", COUNT),
        "one INSERT": Case("bench.insert", COUNT),
        "batch, COPY": Case("bench.batch", COUNT),
    },
    SIDES,
)

if __name__ == "__main__":
    CONTEST.main()
