"""Writes docs/performance.md from benchmarks/results/*.json, and draws what has no drawing yet.

    scripts/bench --page

What was wanted and what was reached, where a request's time goes, then a section for each
benchmark: its figures, its plot, what it ran on. A benchmark that has no results is named as not
measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from benchmarks import page_sections as sections
from benchmarks.causes import Results
from benchmarks.goals import Judged, verdicts
from benchmarks.markdown import NOT_MEASURED, rates_of, table
from benchmarks.page_budget import budget
from benchmarks.page_contests import CONTESTS, contest, floor
from benchmarks.report import RESULTS, say
from benchmarks.spread import ratio

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
Section = Callable[[Mapping[str, Any]], Iterator[str]]
SECTIONS: dict[str, tuple[str, Section]] = {
    "latency": ("Latency of one request", sections.latency),
    "beside": ("A quick type beside a slow one", sections.beside),
    "client": ("The clients", sections.client),
    "gateway": ("The HTTP gateway", sections.gateway),
    "journal_size": ("The journal's size", sections.journal_size),
    "backlog": ("A backlog", sections.backlog),
    "recovery": ("After a kill", sections.recovery),
    "scale": ("Workers and consumers", sections.scale),
    "waiting": ("The waiting queue", sections.waiting),
    "full_path-1": ("Beside the plain design, one worker", sections.full_path),
    "full_path-2": ("Beside the plain design, two workers", sections.full_path),
    "rebalance": ("Rebalances", sections.rebalance),
    "rebalance-planned": ("Planned hand-overs", sections.rebalance),
}
"""Result -> its title, and what is told of it."""
BUDGET = "Where a request's time goes"
HEAD = """# Performance

Written by `scripts/bench --page` from the last full run of each benchmark. How they are taken, and
what each side is, says [benchmarks/README.md](../benchmarks/README.md). All processes (Oncepool or
its rival, broker, PostgreSQL, Redis, producer) share the cores of one machine, whose speed drifts:
sides take turns, each round gives one ratio, and a ratio is told as its median with its lowest and
highest. So a ratio differs from that of the two rates beside it, which are medians themselves.
**Ratios count; rates are those of one machine on one day.**

- *afternoon*: the consumer that a good engineer writes in an afternoon for the same work: a batch
  of messages, one transaction with `INSERT ... ON CONFLICT DO NOTHING`, offsets after it; without
  time-outs, retries, isolation or anything else of what Oncepool adds.
- *bare limit*: the same statements, rows and status commands as Oncepool's, by its own code for
  them, in as many processes and chunks as large; no Kafka, nothing parsed or handed over, and
  neither broker nor main process on the cores beside it. It is no consumer: what it lacks of one
  says [What any design needs](#what-any-design-needs).
- *ec01882*: Oncepool as of commit ec01882 (21 November 2026), for comparison.
"""


def main() -> None:
    from benchmarks.drawings import draw_all  # takes a second

    results = results_in(RESULTS)
    drawn = draw_all(results, RESULTS)
    PAGE.write_text(text_of(results))
    say(f"written: docs/{PAGE.name}, of {', '.join(results) or 'no results'}")
    say(f"drawn: {', '.join(drawn) or 'nothing'}")


def results_in(folder: Path) -> dict[str, Any]:
    """The results of a folder, by name."""
    return {p.stem: orjson.loads(p.read_bytes()) for p in sorted(folder.glob("*.json"))}


def text_of(results: Results) -> str:
    """The page."""
    return "\n\n".join(piece for part in parts_of(results) if (piece := part.strip())) + "\n"


def parts_of(results: Results) -> Iterator[str]:
    """The page, piece by piece."""
    found = verdicts(results)
    yield HEAD
    yield "## Wanted and reached"
    yield _goals(found)
    yield "## Where it loses"
    yield _losses(results, found)
    yield f"## {BUDGET}"
    if "budget" in results:
        yield from budget(results["budget"])
    else:
        yield f"{NOT_MEASURED} `scripts/bench budget` does."
    yield from floor(results)
    for name, title in CONTESTS.items():
        yield f"## {title}"
        yield from contest(name, results[name]) if name in results else (NOT_MEASURED,)
    for name, (title, section) in SECTIONS.items():
        yield f"## {title}"
        yield from section(results[name]) if name in results else (NOT_MEASURED,)
    yield "## What they ran on"
    yield _runs(results)
    missing = [n for n in ("budget", *CONTESTS, *SECTIONS) if n not in results]
    if missing:
        yield f"Not measured yet: {', '.join(missing)}."


def _goals(found: Sequence[Judged]) -> str:
    rows = [(v.goal.what, v.wanted, v.found or "", v.words, v.why) for v in found]
    return table(("ratio", "wanted", "measured", "", "cause"), rows)


def _losses(results: Results, found: Sequence[Judged]) -> str:
    lines = [
        f"- {v.goal.what}: {v.found} where {v.goal.wanted:g} was wanted." for v in found if v.missed
    ]
    for name, title in CONTESTS.items():
        for case, sides in results.get(name, {}).get("found", {}).items():
            ours = rates_of(sides["Oncepool"])
            lines += [
                f"- {title}, {case}: {share} of {side}."
                for side, runs in sides.items()
                if not side.startswith("Oncepool")
                and (share := ratio(ours, rates_of(runs))).median < 1
            ]
    lines += _lost_by_edges(results)
    if not lines:
        return "Nowhere, of what was measured."
    return "The causes of what is missed stand in the table above.\n\n" + "\n".join(lines)


def _lost_by_edges(results: Results) -> list[str]:
    """What gateway and clients lose against the least that does the same, which comes first."""
    groups = {
        f"{SECTIONS['gateway'][0]}, {method}": sides
        for method, sides in results.get("gateway", {}).get("found", {}).items()
    }
    if "client" in results:
        groups[SECTIONS["client"][0]] = results["client"]["found"]
    lines = []
    for what, sides in groups.items():
        first, *others = sides
        for side in others:
            share = ratio(rates_of(sides[side]), rates_of(sides[first]))
            if share.median < 1:
                lines.append(f"- {what}, {side}: {share} of the {first}.")
    return lines


def _runs(results: Results) -> str:
    rows = []
    for name, document in results.items():
        m = document["machine"]
        versions = {**m["services"], **m["packages"], **document.get("frameworks", {})}
        rows.append(
            (f"`{name}`", m["date"][:16].replace("T", " "), m.get("commit") or "unknown",
             f"{m['cores']} cores, {m['memory_gib']:g} GiB", document.get("rounds", ""),
             m["load_before"], m["python"],
             ", ".join(f"{n} {v}" for n, v in versions.items() if n != "oncepool"))
        )  # fmt: skip
    columns = ("benchmark", "date (UTC)", "commit", "machine", "rounds", "load before", "Python",
               "versions")  # fmt: skip
    return table(columns, rows)


if __name__ == "__main__":
    main()
