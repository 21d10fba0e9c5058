"""A soak: load for half an hour or more, workers that are replaced, members that come and go, and
outages; what every process holds must stay as it is, and the books must balance.

    scripts/soak                         30 minutes
    scripts/soak --minutes 120 --report docs/reliability
    scripts/soak --minutes 11 --leak memory --leak thread      has to fail, and say of what

The last line is the verdict; exit code 1 where something does not hold.
"""

from __future__ import annotations

import argparse
import json
import pickle
import shutil
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from tests.chaos.real.episode import PROTOCOLS, Episode, EpisodePlan, Outcome
from tests.chaos.real.judge import GOOD, broken, tell, tell_problems
from tests.chaos.real.pauses import pauses_of
from tests.chaos.real.place import Place
from tests.chaos.real.report import figures
from tests.chaos.real.timeline import effective
from tests.chaos.soak.flat import LONG_ENOUGH
from tests.chaos.soak.leaks import KINDS, VARIABLE
from tests.chaos.soak.page import page
from tests.chaos.soak.verdict import Seen, as_rows, figures_of, troubles
from tests.chaos.soak.vigil import Vigil
from tests.support import run
from tests.support.published import command_of, in_words, versions

COMING_AND_GOING = ("member_joins_and_leaves", "members_storm")
"""Kinds of faults that only strike instances which came for it: residents live through."""
OUTAGES = (
    *("database_unreachable", "database_silent", "database_connections_cut"),
    *("database_backends_all_ended", "database_commit_reply_lost"),
    *("redis_unreachable", "redis_connections_cut", "redis_slow"),
    *("kafka_unreachable", "kafka_silent", "kafka_connections_cut", "commit_reply_lost"),
)
RESIDENTS, WORKERS = 2, 2
DISK = 6144


def parser_of() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0, help="under load and faults")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--rate", type=float, default=150.0, help="requests a second")
    parser.add_argument("--calm", type=float, default=15.0, help="mean seconds between faults")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two looks")
    parser.add_argument(
        "--recycle", type=int, default=2000,
        help="requests after which workers of one resident are replaced",
    )  # fmt: skip
    parser.add_argument(
        "--leak", choices=tuple(KINDS), action="append", default=[],
        help="planted in the main process of the other resident: the run has to fail",
    )  # fmt: skip
    parser.add_argument("--protocol", choices=tuple(PROTOCOLS), default="consumer")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    parser.add_argument("--report", type=Path, help="the page and its figures go to this folder")
    parser.add_argument("--keep", type=Path, help="logs are kept below this folder")
    return parser


def options_of(arguments: list[str] | None = None) -> argparse.Namespace:
    return parser_of().parse_args(arguments)


def plan_of(options: argparse.Namespace, folder: Path) -> EpisodePlan:
    """One long episode: one resident replaces its workers, the other one never does."""
    return EpisodePlan(
        name=f"soak_{options.seed}_{uuid.uuid4().hex[:6]}", protocol=options.protocol,
        ordering="key", seed=options.seed, seconds=options.minutes * 60, instances=RESIDENTS,
        rate=options.rate, calm=options.calm, kinds=COMING_AND_GOING + OUTAGES, workers=WORKERS,
        look_every=options.every, settings={"CHAOS_PAUSES": str(pauses_file(folder))},
        own_settings=(
            {"ONCEPOOL_WORKER_MAX_REQUESTS": str(options.recycle)},
            {VARIABLE: ",".join(options.leak)},
        ),
    )  # fmt: skip


def pauses_file(folder: Path) -> Path:
    return folder / "pauses.log"


def soak(options: argparse.Namespace, folder: Path) -> tuple[Outcome, Seen]:
    """Runs it."""
    plan = plan_of(options, folder)
    with Place(options.brokers, folder, disk=DISK) as place:
        vigil = Vigil(place, plan.name)
        outcome = Episode(place, plan, vigil.over).run()
    if options.keep is not None:
        (folder / "soak.pickle").write_bytes(pickle.dumps(outcome))
    seen = Seen(
        samples=[s for s in outcome.samples if outcome.began <= s.at <= outcome.calm_at],
        residents=RESIDENTS, workers=WORKERS, orphans=vigil.orphans,
        killed=vigil.killed, sessions=vigil.seen, unanswered=vigil.failed,
        pauses=pauses_of(pauses_file(folder)),
    )  # fmt: skip
    return outcome, seen


def verdict_of(outcome: Outcome, seen: Seen) -> tuple[dict[str, list[str]], str]:
    """What does not hold, and the whole in a few words."""
    found = {**broken(outcome), **troubles(seen)}
    if found:
        return found, f"{sum(map(len, found.values()))} problems"
    flat = "flat" if seen.seconds >= LONG_ENOUGH else "too short to say whether it is flat"
    return found, f"{flat}, {GOOD}"


def main() -> int:
    options = options_of()
    versions()  # which may be other ones in the end
    run.begin()
    folder = Path(options.keep or tempfile.mkdtemp(prefix="oncepool-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    try:
        outcome, seen = soak(options, folder)
    finally:
        run.end()
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    found, verdict = verdict_of(outcome, seen)
    if options.report is not None:
        publish(options, outcome, seen, verdict)
    lines = [*tell(outcome), *(f"  {one}" for one in seen.judged)]
    lines += [f"  {name}: {value}" for name, value in figures_of(seen).items()]
    lines += tell_problems(found)
    lines.append(
        f"seed {options.seed}: {seen.seconds / 60:.1f} min, {len(outcome.facts.ledger.items):,}"
        f" requests, {len(effective(outcome))} faults, {seen.killed} main processes killed:"
        f" {verdict}"
    )
    sys.stdout.write("\n".join([*lines, ""]))
    return int(bool(found))


def publish(options: argparse.Namespace, outcome: Outcome, seen: Seen, verdict: str) -> None:
    """Writes the page and its figures."""
    known: dict[str, Any] = {
        "command": command_of("scripts/soak", parser_of(), options),
        "seed": options.seed, "verdict": verdict, "seconds": round(seen.seconds),
        "brokers": options.brokers, "protocol": options.protocol,
        "replaced after, requests": options.recycle,
        "versions": in_words(versions()),
    }  # fmt: skip
    told = {**figures([outcome], known), **figures_of(seen)}
    options.report.mkdir(parents=True, exist_ok=True)
    (options.report / "soak.html").write_text(page(outcome, seen, told))
    told["judged"] = as_rows(seen.judged)
    (options.report / "soak.json").write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    run.end_at_sigterm()
    sys.exit(main())
