"""Writes docs/performance.md from benchmarks/results/*.json.

    scripts/bench --page

What was wanted and what was reached, then a section for each benchmark: its figures, its plot, what
it ran on. A benchmark that has no results is named as not measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from benchmarks.cpu import PARTS, medians
from benchmarks.goals import Judged, Results, verdicts
from benchmarks.report import RESULTS, say, shown
from benchmarks.spread import Spread, ratio, spread

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
CONTESTS = {
    "peers-2": "Beside other consumers, two workers",
    "peers-1": "Beside other consumers, one worker",
    "handoff-2": "Hand-off without a row",
    "cpu_bound-2": "Handlers that compute",
    "io_bound-8": "Handlers that wait, eight workers",
}
ASKED = {"latency": "Latency of one request", "beside": "A quick type beside a slow one"}
SHARES = {"finished": "finished", "in_time": "answered within 1 s"}
BOOKED = {
    "requests": "requests", "lost": "messages lost", "twice": "run twice",
    "unanswered": "unanswered",
}  # fmt: skip
"""Of the books of a run, what the page tells."""
WAITING = ("beside a full queue", "due rows")
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
- *bare limit*: the same SQL and Redis commands in as many processes, without Kafka and with nothing
  parsed or handed over: what any design spends on these.
- *ec01882*: Oncepool itself as of 21 November 2026, the commit that the work on speed began with.
"""
READ_AGAIN_SINCE = "2026-11-22T06:34"
"""When the next owner began to read again what a killed member had committed and not finished."""


def main() -> None:
    results = {p.stem: orjson.loads(p.read_bytes()) for p in sorted(RESULTS.glob("*.json"))}
    PAGE.write_text("\n\n".join(part.strip() for part in parts_of(results)) + "\n")
    say(f"written: docs/{PAGE.name}, of {', '.join(results) or 'no results'}")


def parts_of(results: Results) -> Iterator[str]:
    """The page, piece by piece."""
    found = verdicts(results)
    yield HEAD
    yield "## Wanted and reached"
    yield _goals(found)
    yield "## Where it loses"
    yield _losses(results, found)
    for name, title in CONTESTS.items():
        if name in results:
            yield f"## {title}"
            yield from _contest(name, results[name])
    for name, title in ASKED.items():
        if name in results:
            yield f"## {title}"
            yield from _asked(results[name])
    for name, section in SECTIONS.items():
        if name in results:
            yield from section(results[name])
    yield "## What they ran on"
    yield _runs(results)
    missing = [name for name in (*CONTESTS, *ASKED, *SECTIONS) if name not in results]
    if missing:
        yield f"Not measured yet: {', '.join(missing)}."


def _goals(found: Sequence[Judged]) -> str:
    rows = []
    for verdict in found:
        goal = verdict.goal
        sign = "<=" if goal.at_most else ">="
        missed = verdict.found is not None and not verdict.met
        rows.append(
            (goal.what, f"{sign} {goal.wanted:g}", verdict.found or "", verdict.words,
             goal.why if missed else "")
        )  # fmt: skip
    return table(("ratio", "wanted", "measured", "", "cause"), rows)


def _losses(results: Results, found: Sequence[Judged]) -> str:
    lines = [
        f"- {v.goal.what}: {v.found} where {v.goal.wanted:g} was wanted; {v.goal.why}."
        for v in found
        if v.found is not None and not v.met
    ]
    for name, title in CONTESTS.items():
        for case, sides in results.get(name, {}).get("found", {}).items():
            ours = [run["rate"] for run in sides["Oncepool"]]
            for side, runs in sides.items():
                share = ratio(ours, [run["rate"] for run in runs])
                if share.median < 1 and not side.startswith("Oncepool"):
                    lines.append(f"- {title}, {case}: {share} of {side}.")
    return "\n".join(lines) or "Nowhere, of what was measured."


def _contest(name: str, document: Mapping[str, Any]) -> Iterator[str]:
    for case, sides in document["found"].items():
        ours = [run["rate"] for run in sides["Oncepool"]]
        rows = []
        for side, runs in sides.items():
            cpu = medians([run["cpu"] for run in runs])
            rates = [run["rate"] for run in runs]
            rows.append((side, spread(rates).median, ratio(ours, rates), *cpu.values()))
        yield f"**{case}**: {document['unit']} a second, and microseconds of CPU for each"
        yield table(("side", "rate", "Oncepool / it", *PARTS, "all"), rows)
    yield _plot(name)


def _asked(document: Mapping[str, Any]) -> Iterator[str]:
    yield "Milliseconds, medians of the rounds; one request at a time."
    yield table(
        ("side", "p50", "p99", "longest"),
        [
            (side, *(spread([t[p] for t in times]).median for p in ("p50", "p99", "longest")))
            for side, times in document["found"].items()
        ],
    )


def _journal_size(document: Mapping[str, Any]) -> Iterator[str]:
    yield "## The size of the journal"
    empty = [run["rate"] for run in document["found"]["empty"]]
    yield table(
        ("journal", "requests/s", "share of an empty one's"),
        [
            (name, spread(rates).median, ratio(rates, empty))
            for name, runs in document["found"].items()
            if (rates := [run["rate"] for run in runs])
        ],
    )


def _backlog(document: Mapping[str, Any]) -> Iterator[str]:
    yield "## A backlog"
    for side, found in document["found"].items():
        yield f"{side}, {document['messages']:,} messages, by thirds of them:"
        rows = [("requests/s", *found["rates"])]
        rows += [(f"{part}, MiB", *values) for part, values in found["memory"].items()]
        yield table(("", "first", "second", "last"), rows)


def _recovery(document: Mapping[str, Any]) -> Iterator[str]:
    yield "## After a kill"
    yield "Seconds from SIGKILL until requests that follow are answered."
    sides = document["found"]
    faults = next(iter(sides.values()))
    rows = [(fault, *(spread(side[fault]) for side in sides.values())) for fault in faults]
    yield table(("killed", *sides), rows)


def _waiting(document: Mapping[str, Any]) -> Iterator[str]:
    yield "## The waiting queue"
    rows = [
        (handler, *(ratio(rates[side], rates["empty queue"]) for side in WAITING))
        for handler, rates in document["requests_per_second"].items()
    ]
    yield table(("handler, as a share of fresh requests with an empty queue", *WAITING), rows)
    yield _plot("waiting")


def _full_path(document: Mapping[str, Any]) -> Iterator[str]:
    yield f"## Beside the plain design, {document['workers']} worker(s)"
    sides = list(document["requests"])[1:]
    rows = [
        (handler, *(ratio(rates["Oncepool"], rates[side]) for side in sides))
        for handler, rates in document["requests_per_second"].items()
    ]
    yield table(("Oncepool as a multiple of", *sides), rows)
    yield (
        "The bare limit is the same SQL and Redis commands in as many processes with all cores to "
        "themselves: no Kafka, nothing parsed or handed over. What is missing to 1 is what any "
        "design spends on these, and what Oncepool's way adds."
    )
    yield _plot(document["benchmark"])


def _rebalance(document: Mapping[str, Any]) -> Iterator[str]:
    name = document["benchmark"]
    yield "## Rebalances" if name == "rebalance" else "## Planned hand-overs"
    protocols = document["protocols"]
    yield table(
        ("with rebalances as a share of without", *protocols),
        [
            (text, *(Spread(**found["ratio"][figure]) for found in protocols.values()))
            for figure, text in SHARES.items()
        ],
    )
    books = [found["outcome"]["books"] for found in protocols.values()]
    yield table(
        ("books", *protocols),
        [(text, *(found[key] for found in books)) for key, text in BOOKED.items()],
    )
    if document["machine"]["date"] < READ_AGAIN_SINCE:
        yield (
            "Messages lost are those that a killed member had committed and not finished, which "
            "their producer sends again. The run is older than `read_again` (on by default), with "
            "which the next owner reads them again: it says nothing of how many are lost today."
        )
    yield "In words in [benchmarks/README.md](../benchmarks/README.md#rebalance)."
    yield _plot(name)


def _scale(document: Mapping[str, Any]) -> Iterator[str]:
    yield "## Workers and consumers"
    for case, sides in document["found"].items():
        base = [run["rate"] for run in sides["1 x 1"]]
        yield f"**{case}**, instances x workers on the same cores"
        yield table(
            ("side", "requests/s", "/ 1 x 1"),
            [
                (side, spread(rates).median, ratio(rates, base))
                for side, runs in sides.items()
                if (rates := [run["rate"] for run in runs])
            ],
        )
    cores = ", ".join(f"{name} {number}" for name, number in document["modelled_cores"].items())
    yield (
        f"A model, of what a request costs each process: consumers with "
        f"{document['modelled_workers']} workers on machines of their own, and cores of the shared "
        f"services: {cores}. What is full first is what to share out first, by topics with a "
        "database or a Redis of their own."
    )
    numbers = list(next(iter(document["modelled"].values()), ()))
    yield table(
        ("requests/s of consumers", *numbers),
        [(case, *rates.values()) for case, rates in document["modelled"].items()],
    )


def _gateway(document: Mapping[str, Any]) -> Iterator[str]:
    yield "## The HTTP gateway"
    yield f"{document['connections']} connections; CPU in microseconds of the server for each call."
    for method, sides in document["found"].items():
        bare = [run["rate"] for run in next(iter(sides.values()))]
        yield f"**{method}**"
        yield table(
            ("side", "calls/s", "/ the first", "p50, ms", "p99, ms", "CPU"),
            [
                (
                    side, spread(rates).median, ratio(rates, bare),
                    *(spread([run["times"][p] for run in runs]).median for p in ("p50", "p99")),
                    spread([run["cpu"]["server"] for run in runs]).median,
                )
                for side, runs in sides.items()
                if (rates := [run["rate"] for run in runs])
            ],
        )  # fmt: skip


SECTIONS = {
    "gateway": _gateway,
    "journal_size": _journal_size,
    "backlog": _backlog,
    "recovery": _recovery,
    "scale": _scale,
    "waiting": _waiting,
    "full_path-1": _full_path,
    "full_path-2": _full_path,
    "rebalance": _rebalance,
    "rebalance-planned": _rebalance,
}
"""What is told of the others."""


def _runs(results: Results) -> str:
    rows = []
    for name, document in results.items():
        m = document["machine"]
        versions = {**m["services"], **m["packages"], **document.get("frameworks", {})}
        rows.append(
            (f"`{name}`", m["date"][:16].replace("T", " "), m.get("commit") or "unknown",
             f"{m['cores']} cores, {m['memory_gib']:g} GiB", m["load_before"], m["python"],
             ", ".join(f"{n} {v}" for n, v in versions.items() if n != "oncepool"))
        )  # fmt: skip
    columns = ("benchmark", "date (UTC)", "commit", "machine", "load before", "Python", "versions")
    return table(columns, rows)


def _plot(name: str) -> str:
    path = RESULTS / f"{name}.svg"
    return f"![{name}](../benchmarks/results/{name}.svg)" if path.exists() else ""


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table of Markdown."""
    lines = [columns, ["---"] * len(columns), *([_cell(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: object) -> str:
    return shown(value).replace("|", "\\|")


if __name__ == "__main__":
    main()
