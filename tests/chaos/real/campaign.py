"""Chaos on real parts: episodes of faults, and an oracle outside the code.

    scripts/chaos                        about two minutes
    scripts/chaos --hours 2              longer: episodes over all protocols and orderings
    scripts/chaos --requests 1000000     as long as it takes to send so many
    scripts/chaos --seed 7               the same schedule of faults again
    scripts/chaos --report FOLDER        also writes the page with plots, and its figures

The last line is the verdict; exit code 1 where an invariant does not hold.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import math
import pickle
import shutil
import sys
import tempfile
import time
import traceback
import uuid
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from tests.chaos.real.books import balance
from tests.chaos.real.checks import CHECKS, kept_order
from tests.chaos.real.episode import PROTOCOLS, Episode, EpisodePlan, Outcome
from tests.chaos.real.growth import growth
from tests.chaos.real.more_figures import of_checks, of_orders
from tests.chaos.real.place import SMALL_DISK, Place
from tests.chaos.real.report import as_json, page
from tests.support import run
from tests.support.published import command_of, versions

ORDERINGS = ("key", "partition", "none")
MATRIX = [
    (protocol, ORDERINGS[(number + shift) % 3])
    for shift in range(3)
    for number, protocol in enumerate(PROTOCOLS)
]
"""Neighbours differ in both, so that a short run sees much."""
PER_MEBIBYTE = 500
"""Requests that fill a MiB of the database's disk at most."""
SHOWN = 12
GOOD = "nothing lost, nothing twice, all explained"


@dataclass(frozen=True)
class Chapter:
    """What is at hand of an episode while others run."""

    file: Path | None
    """Where its outcome lies; None where it came to no end."""
    requests: int
    problems: int
    effective: Counter[str]
    """Faults that took effect, by kind."""
    orders: int = 0
    """Orders that were committed and went through an outbox."""


def plans(options: argparse.Namespace) -> list[EpisodePlan]:
    """The episodes of a run."""
    total = options.hours * 3600 or options.seconds or options.requests / options.rate or 60.0
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
            orders=options.orders,
            gateway=options.gateway,
            plain=options.plain,
            share=(number, count),
        )
        for number, (protocol, ordering) in enumerate(matrix)
    ]  # fmt: skip


def problems(outcome: Outcome) -> dict[str, list[str]]:
    """What does not hold, by check."""
    held = growth(outcome.samples, outcome.plan.workers)
    found = {**broken(outcome), "resources stay as they are": held.found}
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
        "with a Kafka timestamp out of range": sum(
            item.timestamp != 0 for item in facts.ledger.items.values()
        ),
        "messages": books.sent,
        "ran": books.executed,
        "answered": books.answered,
        "answered when read again": books.answered_again,
        "settled a doubt": books.settled,
        "failed before a later copy ran": books.ended,
        "dead letters": books.letters,
        "rows": dict(states),
        "lost at first": dict(books.lost),
        "later copies without a trace": dict(books.lost_later),
        "bad input lost": dict(books.lost_bad),
        "sent again": dict(facts.ledger.resends),
        "retried by the operator": outcome.operator_retries,
        "out of order as it was in flight at a kill": kept_order(facts)[1],
        **of_checks([outcome]),
        **of_orders([outcome]),
        **gateway_figures(outcome),
        f"{effective.total()} faults of {len(effective)} kinds": dict(effective),
        "without effect": dict(vain),
    }
    seconds = outcome.ended - outcome.began
    title = f"{plan.name}: {plan.protocol}, ordering {plan.ordering}, {seconds:.0f} s"
    return [title, *(f"  {name}: {figure}" for name, figure in figures.items())]


def gateway_figures(outcome: Outcome) -> dict[str, object]:
    """Of requests that went through a gateway, where there are any."""
    gateway = outcome.facts.gateway
    if gateway is None:
        return {}
    return {"through the gateway": len(gateway.ids), "its answers": dict(gateway.answers)}


def parser_of() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hours", type=float, default=0.0, help="of faults, in all")
    parser.add_argument(
        "--seconds", type=float, default=0.0,
        help="the same in seconds; as long as the requests take at this rate, or a minute",
    )  # fmt: skip
    parser.add_argument(
        "--requests", type=int, default=0,
        help="faults go on until so many were sent, for 1.4 times the time at most",
    )  # fmt: skip
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
    parser.add_argument(
        "--orders", type=float, default=0.0,
        help="orders a second that go through an outbox, with relays and producer struck as well",
    )  # fmt: skip
    parser.add_argument(
        "--gateway", type=float, default=0.0, metavar="SHARE",
        help="of the requests, that go through a gateway, which is struck as well",
    )  # fmt: skip
    parser.add_argument(
        "--plain", type=float, default=0.0, metavar="SHARE",
        help="of the requests, that are of the plainest type: a run of many needs less time",
    )  # fmt: skip
    parser.add_argument("--calm", type=float, default=1.0, help="mean seconds between faults")
    parser.add_argument("--faults", default="", help="only these kinds, comma separated")
    parser.add_argument("--report", type=Path, help="the page and its figures go to this folder")
    parser.add_argument("--keep", type=Path, help="logs are kept below this folder")
    return parser


def options_of(arguments: list[str] | None = None) -> argparse.Namespace:
    return parser_of().parse_args(arguments)


def main() -> int:
    options = options_of()
    versions()  # which may be other ones in the end
    began = time.time()
    gc.disable()  # a collection would stop the gates
    run.begin()
    folder = Path(options.keep or tempfile.mkdtemp(prefix="oncepool-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    try:
        disk = SMALL_DISK + options.requests // PER_MEBIBYTE
        with Place(options.brokers, folder, disk=disk, pooled=options.pooled) as place:
            chapters = play(place, options)
        seconds = time.time() - began
        if options.report is not None:
            publish(chapters, options, seconds)
    finally:
        run.end()
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    found = sum(chapter.problems for chapter in chapters)
    kinds = sum((chapter.effective for chapter in chapters), Counter[str]())
    requests = sum(chapter.requests for chapter in chapters)
    orders = sum(chapter.orders for chapter in chapters)
    through = f", {orders:,} orders through an outbox" if orders else ""
    sys.stdout.write(
        f"seed {options.seed}: {requests:,} requests{through}, {kinds.total():,} faults of "
        f"{len(kinds)} kinds, {seconds:.0f} s: {verdict_of(found)}\n"
    )
    return int(found > 0)


def play(place: Place, options: argparse.Namespace) -> list[Chapter]:
    """Runs all episodes. Each sends its share of what the run is to send and has not sent yet."""
    chapters: list[Chapter] = []
    planned = plans(options)
    for number, plan in enumerate(planned):
        left = options.requests - sum(chapter.requests for chapter in chapters)
        share = max(0, math.ceil(left / (len(planned) - number)))
        try:
            chapters.append(chapter_of(place, replace(plan, requests=share)))
        except Exception:  # noqa: BLE001 - hours of other episodes are not to be lost for one
            traceback.print_exc(file=sys.stdout)
            chapters.append(Chapter(None, 0, 1, Counter()))
            place.mend()
        gc.collect()
    return chapters


def chapter_of(place: Place, plan: EpisodePlan) -> Chapter:
    """Runs an episode, and puts all but a few figures of it into a file."""
    outcome = episode(place, plan)
    file = place.folder / f"{plan.name}.pickle"
    file.write_bytes(pickle.dumps(outcome))
    struck = Counter(s.kind for s in outcome.facts.struck if s.evidence)
    problems = sum(map(len, outcome.wrong.values()))
    orders = outcome.facts.orders
    committed = len(orders.committed) if orders is not None else 0
    return Chapter(file, len(outcome.facts.ledger.items), problems, struck, committed)


def verdict_of(found: int) -> str:
    return f"{found} problems" if found else GOOD


def publish(chapters: list[Chapter], options: argparse.Namespace, seconds: float) -> None:
    """Writes the page and its figures."""
    outcomes = [pickle.loads(chapter.file.read_bytes()) for chapter in chapters if chapter.file]
    found = sum(chapter.problems for chapter in chapters)
    run_ = {
        "seed": options.seed,
        "verdict": verdict_of(found),
        "command": command_of("scripts/chaos", parser_of(), options),
        "seconds": round(seconds),
        "brokers": options.brokers,
        "instances": options.instances,
        "pooled connections": options.pooled,
        "versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
    }
    options.report.mkdir(parents=True, exist_ok=True)
    (options.report / "chaos.html").write_text(page(outcomes, run_))
    (options.report / "chaos.json").write_text(as_json(outcomes, run_))


def episode(place: Place, plan: EpisodePlan) -> Outcome:
    """Runs one and says what came of it."""
    outcome = Episode(place, plan).run()
    outcome.wrong = problems(outcome)
    lines = tell(outcome)
    for name, some in outcome.wrong.items():
        lines.append(f"  PROBLEM {name}: {len(some)}")
        lines += [f"    {line}" for line in some[:SHOWN]]
    sys.stdout.write("\n".join([*lines, ""]))
    sys.stdout.flush()
    return outcome


if __name__ == "__main__":
    sys.exit(main())
