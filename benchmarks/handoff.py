"""What it costs to hand a request to a handler and tell its end, where no row is kept.

    scripts/bench handoff [--quick] [--rounds N] [--workers N] [--own] [--against REV]

Handlers with effect="none" that do nothing, with a status for each and without
(`done_status=False`), against arroyo with a task that does nothing, in processes of a pool as its
documentation has it for work that needs several cores, that pool tuned as it says, and in the
consumer itself; and against a bare loop of confluent-kafka that reads headers and commits, and as
many as there are workers that take batches. None of these writes statuses or ends a handler that
takes too long, and only the pools have processes for their handlers. Handlers count: see
benchmarks/tally.py.
"""

from __future__ import annotations

from benchmarks.contenders import TALLIED, Contender
from benchmarks.contest import Case, Contest

APP = "benchmarks.handoff_app:app"
ARROYO, LOOP = "benchmarks.frameworks.arroyo_app", "benchmarks.bare_loop"
SIDES = (
    Contender("Oncepool", table=TALLIED, app=APP),
    Contender(
        "arroyo, pool", (ARROYO, "HANDLER", "pool", "WORKERS"), TALLIED, once=True, framework=True,
    ),
    Contender(
        "arroyo, pool, tuned", (ARROYO, "HANDLER", "tuned", "WORKERS"), TALLIED, once=True,
        framework=True,
    ),
    Contender("arroyo, no pool", (ARROYO, "HANDLER", "handoff"), TALLIED, framework=True),
    Contender("Oncepool, no status", table=TALLIED, app=APP, kind="bench.untold", share=2),
    Contender("bare loop", (LOOP, "poll"), TALLIED, share=3, once=True),
    Contender("bare loops, by batches", (LOOP, "consume"), TALLIED, share=3),
)  # fmt: skip
CONTEST = Contest("handoff", __doc__, {"no-op": Case("bench.handoff", 300_000)}, SIDES)

if __name__ == "__main__":
    CONTEST.main()
