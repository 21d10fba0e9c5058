"""Chaos on real parts: episodes of faults, and an oracle outside the code.

    scripts/chaos                        about two minutes
    scripts/chaos --hours 2              longer: episodes over all protocols and orderings
    scripts/chaos --requests 1000000     as long as it takes to send so many
    scripts/chaos --seed 7               the same schedule of faults again
    scripts/chaos --report FOLDER        also writes the page with plots, and its figures
    scripts/chaos --judge FOLDER         runs nothing: judges what --keep has kept there

The last line is the verdict; exit code 1 where an invariant does not hold.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import math
import shutil
import sys
import tempfile
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.chaos.real.connection_checks import lost_alone, lost_connections, none_was_judged
from tests.chaos.real.episode import PROTOCOLS, Episode, EpisodePlan, Outcome
from tests.chaos.real.judge import problems, tell, tell_problems, verdict_of
from tests.chaos.real.kept_run import (
    WITHOUT_END,
    keep_known,
    keep_outcome,
    kept_outcomes,
    known_of,
    outcome_in,
    publish,
)
from tests.chaos.real.place import SMALL_DISK, Place
from tests.support import run
from tests.support.published import command_of, in_words, versions

ORDERINGS = ("key", "partition", "none")
MATRIX = [
    (protocol, ORDERINGS[(number + shift) % 3])
    for shift in range(3)
    for number, protocol in enumerate(PROTOCOLS)
]
"""Neighbours differ in both, so that a short run sees much."""
PER_MEBIBYTE = 500
"""Requests that fill a MiB of the database's disk at most."""


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
    lost_connections: int = 0
    """Single connections to the database that were lost."""
    lost_alone: int = 0
    """Those of them that are judged, as nothing else struck that could refuse."""


NO_END = Chapter(None, 0, 1, Counter())


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
    parser.add_argument(
        "--keep", type=Path, help="logs, and all that is judged, are kept below this folder"
    )
    parser.add_argument(
        "--judge", type=Path, metavar="FOLDER",
        help="runs nothing: judges the run that was kept there, by the checks of today",
    )  # fmt: skip
    return parser


def options_of(arguments: list[str] | None = None) -> argparse.Namespace:
    return parser_of().parse_args(arguments)


def main() -> int:
    options = options_of()
    gc.disable()  # a collection would stop the gates
    if options.judge is not None:
        return judge_again(options.judge, options.report)
    versions()  # which may be other ones in the end
    began = time.time()
    run.begin()
    folder = Path(options.keep or tempfile.mkdtemp(prefix="oncepool-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    try:
        disk = SMALL_DISK + options.requests // PER_MEBIBYTE
        with Place(options.brokers, folder, disk=disk, pooled=options.pooled) as place:
            chapters = play(place, options, began)
        known = known_of(folder)
        if options.report is not None:
            outcomes = [outcome_in(chapter.file) for chapter in chapters if chapter.file]
            publish(outcomes, known | {"verdict": verdict_of(found_in(chapters))}, options.report)
    finally:
        run.end()
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    return end(chapters, known)


def judge_again(folder: Path, report: Path | None) -> int:
    """Judges a run that was kept, with the checks of today, and publishes it."""
    known, chapters, outcomes = known_of(folder), [], []
    for file, outcome in kept_outcomes(folder):
        outcome.wrong = problems(outcome)
        say(outcome)
        chapters.append(chapter_of(file, outcome))
        outcomes.append(outcome)
    chapters += [NO_END] * known.get(WITHOUT_END, 0)
    if (judge := in_words(versions())) != known["versions"]:
        known["judged by"] = judge
    known["verdict"] = verdict_of(found_in(chapters))
    if report is not None:
        publish(outcomes, known, report)
    return end(chapters, known)


def end(chapters: list[Chapter], known: Mapping[str, Any]) -> int:
    """Says the verdict on a whole run; its exit code."""
    found = found_in(chapters)
    kinds = sum((chapter.effective for chapter in chapters), Counter[str]())
    requests = sum(chapter.requests for chapter in chapters)
    orders = sum(chapter.orders for chapter in chapters)
    through = f", {orders:,} orders through an outbox" if orders else ""
    lines = [*tell_problems(problems_of_run(chapters)), (
        f"seed {known['seed']}: {requests:,} requests{through}, {kinds.total():,} faults of "
        f"{len(kinds)} kinds, {known['seconds']} s: {verdict_of(found)}"
    )]  # fmt: skip
    sys.stdout.write("\n".join([*lines, ""]))
    return int(found > 0)


def problems_of_run(chapters: list[Chapter]) -> dict[str, list[str]]:
    """What does not hold of a run as a whole, by rule."""
    lost = sum(chapter.lost_connections for chapter in chapters)
    alone = sum(chapter.lost_alone for chapter in chapters)
    found = {"one lost connection is judged": none_was_judged(lost, alone)}
    return {name: lines for name, lines in found.items() if lines}


def found_in(chapters: list[Chapter]) -> int:
    """How many problems a run has."""
    of_run = sum(map(len, problems_of_run(chapters).values()))
    return sum(chapter.problems for chapter in chapters) + of_run


def play(place: Place, options: argparse.Namespace, began: float) -> list[Chapter]:
    """Runs all episodes. Each sends its share of what the run is to send and has not sent yet."""
    chapters: list[Chapter] = []
    planned, known = plans(options), known_from(options)
    for number, plan in enumerate(planned):
        left = options.requests - sum(chapter.requests for chapter in chapters)
        share = max(0, math.ceil(left / (len(planned) - number)))
        try:
            outcome = episode(place, replace(plan, requests=share))
            chapters.append(chapter_of(keep_outcome(place.folder, outcome), outcome))
            del outcome
        except Exception:  # noqa: BLE001 - hours of other episodes are not to be lost for one
            traceback.print_exc(file=sys.stdout)
            chapters.append(NO_END)
            known[WITHOUT_END] += 1
            place.mend()
        known["seconds"] = round(time.time() - began)
        keep_known(place.folder, known)
        gc.collect()
    return chapters


def chapter_of(file: Path, outcome: Outcome) -> Chapter:
    """All that is needed of an episode that has been judged, and lies in this file."""
    facts = outcome.facts
    return Chapter(
        file=file,
        requests=len(facts.ledger.items),
        problems=sum(map(len, outcome.wrong.values())),
        effective=Counter(s.kind for s in facts.struck if s.evidence),
        orders=len(facts.orders.committed) if facts.orders is not None else 0,
        lost_connections=len(lost_connections(facts)),
        lost_alone=len(lost_alone(facts)),
    )


def known_from(options: argparse.Namespace) -> dict[str, Any]:
    """What is known of a run when it begins."""
    return {
        "seed": options.seed,
        "command": command_of("scripts/chaos", parser_of(), options),
        "brokers": options.brokers,
        "instances": options.instances,
        "pooled connections": options.pooled,
        "versions": in_words(versions()),
        WITHOUT_END: 0,
    }


def episode(place: Place, plan: EpisodePlan) -> Outcome:
    """Runs one and says what came of it."""
    outcome = Episode(place, plan).run()
    outcome.wrong = problems(outcome)
    say(outcome)
    return outcome


def say(outcome: Outcome) -> None:
    """What came of an episode that has been judged."""
    sys.stdout.write("\n".join([*tell(outcome), *tell_problems(outcome.wrong), ""]))
    sys.stdout.flush()


if __name__ == "__main__":
    run.end_at_sigterm()
    sys.exit(main())
