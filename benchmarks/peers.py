"""Oncepool against the consumer of an afternoon, other frameworks, and other commits of itself.

    scripts/bench peers [--quick] [--rounds N] [--workers N] [--handler TYPE] [--against REV]
                        [--own]

All sides find the same requests in a topic and do the same work: a row that keeps a second copy
from running, the handler's effect, a status in Redis. What has no worker processes runs in as many
processes as Oncepool has workers. Sides take turns; each round gives one ratio, and CPU per request
of every process on the machine that has a part in it.
"""

from __future__ import annotations

import argparse

from benchmarks.contenders import Contender, present, runs, tell
from benchmarks.frameworks_environment import version_of
from benchmarks.machine import facts
from benchmarks.other_tree import add_option, other_tree
from benchmarks.report import say, write_json
from benchmarks.services import services
from benchmarks.spread import ratio

ROUNDS = 5
COUNT = 60_000
HANDLERS = ("bench.noop", "bench.insert", "bench.batch")
SINGLE = ("bench.noop", "bench.insert")
ONE = ("bench.insert",)
OURS, AFTERNOON = "Oncepool", "afternoon"
ARROYO, FASTSTREAM = "benchmarks.frameworks.arroyo_app", "benchmarks.frameworks.faststream_app"
OWN = (
    Contender(OURS),
    Contender("Oncepool, pipeline", kind="bench.pipelined", handlers=ONE),
    Contender(AFTERNOON, ("benchmarks.afternoon", "HANDLER", "wait"), "plain"),
    Contender(
        "afternoon, pipeline", ("benchmarks.afternoon", "HANDLER", "pipeline"), "plain",
        handlers=ONE,
    ),
)  # fmt: skip
FRAMEWORKS = (
    Contender("FastStream, batch", (FASTSTREAM, "HANDLER", "batch"), "plain", framework=True),
    Contender(
        "FastStream, max_workers", (FASTSTREAM, "HANDLER", "workers"), "plain",
        handlers=SINGLE, share=0.1, framework=True,
    ),
    Contender("arroyo, batch", (ARROYO, "HANDLER", "batch"), "plain", framework=True),
    Contender(
        "arroyo, message", (ARROYO, "HANDLER", "message"), "plain",
        handlers=SINGLE, share=0.15, framework=True,
    ),
    Contender(
        "DBOS", ("benchmarks.frameworks.dbos_app", "HANDLER"), "by_dbos",
        handlers=SINGLE, share=0.03, framework=True,
    ),
)  # fmt: skip
PACKAGES = {"FastStream": "faststream", "arroyo": "sentry-arroyo", "DBOS": "dbos"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one round, a third of the work")
    parser.add_argument("--rounds", type=int, help=f"rounds (default: {ROUNDS})")
    parser.add_argument("--count", type=int, help=f"requests of a run (default: {COUNT:,})")
    parser.add_argument("--workers", type=int, default=2, help="worker processes (default: 2)")
    parser.add_argument("--handler", choices=HANDLERS, action="append", help="only this one")
    parser.add_argument("--own", action="store_true", help="no other frameworks")
    add_option(parser)
    options = parser.parse_args()
    rounds = options.rounds or (1 if options.quick else ROUNDS)
    count = options.count or (COUNT // 3 if options.quick else COUNT)
    sides = present(OWN if options.own else OWN + FRAMEWORKS)
    there = any(side.framework for side in sides)
    versions = {name: version_of(package) for name, package in PACKAGES.items()} if there else {}
    with other_tree(options.against) as tree, services() as local:
        if tree is not None:
            sides.append(Contender(options.against, tree=tree))
        machine = facts(local)
        caption = ", ".join([machine.line, *(f"{n} {number}" for n, number in versions.items())])
        found, last = {}, []
        for handler in options.handler or HANDLERS:
            having = [side for side in sides if not side.handlers or handler in side.handlers]
            found[handler] = runs(local, handler, having, options.workers, rounds, count)
            tell(handler, found[handler], caption)
            own, theirs = ([m.rate for m in found[handler][n]] for n in (OURS, AFTERNOON))
            last.append(f"{handler} {ratio(own, theirs)}")
    if not options.quick:
        results = {
            "count": count, "rounds": rounds, "workers": options.workers,
            "frameworks": versions, "found": found,
        }  # fmt: skip
        write_json(f"peers-{options.workers}", machine, results)
    say(f"Oncepool / the afternoon's consumer: {'; '.join(last)}")


if __name__ == "__main__":
    main()
