"""What it costs to hand a request to a handler and tell its end, where no row is kept.

    scripts/bench handoff [--quick] [--rounds N] [--workers N] [--own] [--against REV]

Handlers with effect="none" that do nothing, with a status for each and without
(`done_status=False`), against arroyo with a task that does nothing, and a bare loop of
confluent-kafka that reads headers and commits. Neither of these writes statuses, has processes for
its handlers, or ends one that takes too long. Handlers count: see benchmarks/tally.py.
"""

from __future__ import annotations

from benchmarks.contenders import TALLIED, Contender
from benchmarks.contest import Case, Contest

APP = "benchmarks.handoff_app:app"
SIDES = (
    Contender("Oncepool", table=TALLIED, app=APP),
    Contender(
        "arroyo", ("benchmarks.frameworks.arroyo_app", "HANDLER", "handoff"), TALLIED,
        framework=True,
    ),
    Contender("Oncepool, no status", table=TALLIED, app=APP, kind="bench.untold"),
    Contender("bare loop", ("benchmarks.bare_loop",), TALLIED),
)  # fmt: skip
CONTEST = Contest("handoff", __doc__, {"no-op": Case("bench.handoff", 150_000)}, SIDES)

if __name__ == "__main__":
    CONTEST.main()
