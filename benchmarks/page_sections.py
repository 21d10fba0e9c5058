"""The page's sections on single questions, one function each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.cpu import PARTS
from benchmarks.markdown import cpu_table, cpus, median_of, plot, rates_of, table
from benchmarks.page_contests import ALIKE_SINCE, UNLIKE
from benchmarks.spread import Spread, ratio, spread

SHARES = {"finished": "finished", "in_time": "answered within 1 s"}
BOOKED = {
    "requests": "requests", "lost": "messages lost", "twice": "run twice",
    "unanswered": "unanswered",
}  # fmt: skip
"""Of the books of a run, what the page tells."""
WAITING = ("beside a full queue", "due rows")
READ_AGAIN_SINCE = "2026-11-22T06:34"
"""When the next owner began to read again what a killed member had committed and not finished."""


def latency(document: Mapping[str, Any]) -> Iterator[str]:
    """One request at a time."""
    yield "Milliseconds, medians of the rounds; one request at a time."
    yield _times(document["found"])
    yield from _steps(document.get("steps"))
    yield cpu_table("side", {side: cpus(runs) for side, runs in document["found"].items()})
    yield plot("latency")


def beside(document: Mapping[str, Any]) -> Iterator[str]:
    """A quick type beside a slow one."""
    yield "Milliseconds, medians of the rounds; one request at a time."
    yield _times(document["found"])
    text = cpu_table("case", {case: cpus(runs) for case, runs in document["found"].items()})
    yield f"For each quick request, what the slow ones compute meanwhile included. {text}"
    yield plot("beside")


def _times(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    parts = ("p50", "p99", "longest")
    rows = [(side, *(median_of(runs, part) for part in parts)) for side, runs in found.items()]
    return table(("side", *parts), rows)


def _steps(steps: Sequence[Mapping[str, Any]] | None) -> Iterator[str]:
    if not steps:
        yield "By step: not measured."
        return
    yield (
        "By step, from time stamps in each process: the median of all idle requests, and the mean "
        "of the slowest of a hundred; milliseconds until the step is over since the one before was."
    )
    yield table(
        ("step", "median", "slowest 1 %"),
        [(step["step"], step["median"], step["slow"]) for step in steps],
    )


def journal_size(document: Mapping[str, Any]) -> Iterator[str]:
    """Journals of several sizes."""
    found = document["found"]
    empty = rates_of(found["empty"])
    rows = [
        (name, spread(rates).median, ratio(rates, empty))
        for name, runs in found.items()
        if (rates := rates_of(runs))
    ]
    yield table(("journal", "requests/s", "share of an empty one's"), rows)
    yield cpu_table("journal", {name: cpus(runs) for name, runs in found.items()})
    yield plot("journal_size")


def backlog(document: Mapping[str, Any]) -> Iterator[str]:
    """A backlog by thirds."""
    for side, runs in document["found"].items():
        yield f"{side}, {document['messages']:,} messages, by thirds of them, medians:"
        rows: list[Sequence[object]] = [("requests/s", *_by_third([r["rates"] for r in runs]))]
        rows += [
            (f"{part}, MiB", *_by_third([r["memory"][part] for r in runs]))
            for part in runs[0]["memory"]
        ]
        for part in PARTS:
            costs = [[third.get(part) for third in run.get("cpu", ())] for run in runs]
            if all(one and None not in one for one in costs):
                rows.append((f"{part}, us of CPU for each", *_by_third(costs)))
        yield table(("", "first", "second", "last"), rows)
    yield plot("backlog")


def _by_third(runs: Sequence[Sequence[Any]]) -> list[float]:
    return [spread(third).median for third in zip(*runs, strict=True)]


def recovery(document: Mapping[str, Any]) -> Iterator[str]:
    """Times until answers after a kill."""
    yield "Seconds from SIGKILL until requests that follow are answered."
    sides = document["found"]
    faults = next(iter(sides.values()))
    rows = [(fault, *(spread(side[fault]) for side in sides.values())) for fault in faults]
    yield table(("killed", *sides), rows)
    text = cpu_table("side", {side: document.get("cpu", {}).get(side, []) for side in sides})
    yield f"Under the same light load, with nothing killed. {text}"
    yield plot("recovery")


def waiting(document: Mapping[str, Any]) -> Iterator[str]:
    """The waiting queue."""
    rows = [
        (handler, *(ratio(rates[side], rates["empty queue"]) for side in WAITING))
        for handler, rates in document["requests_per_second"].items()
    ]
    yield table(("handler, as a share of fresh requests with an empty queue", *WAITING), rows)
    yield _cpu_of_handlers(document)
    yield plot("waiting")


def full_path(document: Mapping[str, Any]) -> Iterator[str]:
    """Beside the plain design."""
    sides = list(document["requests"])[1:]
    rows = [
        (handler, *(ratio(rates["Oncepool"], rates[side]) for side in sides))
        for handler, rates in document["requests_per_second"].items()
    ]
    yield table(("Oncepool as a multiple of", *sides), rows)
    if document["machine"]["date"] < ALIKE_SINCE:
        yield UNLIKE
    yield _cpu_of_handlers(document)
    yield plot(document["benchmark"])


def _cpu_of_handlers(document: Mapping[str, Any]) -> str:
    return cpu_table(
        "handler, side",
        {
            f"{handler}, {side}": runs
            for handler, sides in document.get("cpu", {}).items()
            for side, runs in sides.items()
        },
    )


def rebalance(document: Mapping[str, Any]) -> Iterator[str]:
    """Rebalances, or planned hand-overs."""
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
    quiet = {
        name: cpus([s for s in found["outcome"].get("stretches", ()) if not s["events"]])
        for name, found in protocols.items()
    }
    yield f"Of undisturbed stretches. {cpu_table('protocol', quiet)}"
    yield "In words in [benchmarks/README.md](../benchmarks/README.md#rebalance)."
    yield plot(document["benchmark"])


def scale(document: Mapping[str, Any]) -> Iterator[str]:
    """Workers and consumers, and the model."""
    for case, sides in document["found"].items():
        base = rates_of(sides["1 x 1"])
        yield f"**{case}**, instances x workers on the same cores"
        yield table(
            ("side", "requests/s", "/ 1 x 1"),
            [
                (side, spread(rates).median, ratio(rates, base))
                for side, runs in sides.items()
                if (rates := rates_of(runs))
            ],
        )
        yield cpu_table("side", {side: cpus(runs) for side, runs in sides.items()})
    yield plot("scale")
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


def gateway(document: Mapping[str, Any]) -> Iterator[str]:
    """The HTTP gateway."""
    yield f"{document['connections']} connections; CPU in microseconds of each process for a call."
    for method, sides in document["found"].items():
        bare = rates_of(next(iter(sides.values())))
        parts = list(next(iter(sides.values()))[0]["cpu"])
        yield f"**{method}**"
        yield table(
            ("side", "calls/s", "/ the first", "p50, ms", "p99, ms", *parts),
            [
                (
                    side, spread(rates).median, ratio(rates, bare),
                    *(spread([run["times"][p] for run in runs]).median for p in ("p50", "p99")),
                    *(spread([run["cpu"][part] for run in runs]).median for part in parts),
                )
                for side, runs in sides.items()
                if (rates := rates_of(runs))
            ],
        )  # fmt: skip
    yield plot("gateway")


def client(document: Mapping[str, Any]) -> Iterator[str]:
    """The clients beside the bare steps of asking."""
    found = document["found"]
    first, runs = next(iter(found.items()))
    bare, halves = rates_of(runs), _halves(runs)
    parts = list(runs[0]["cpu"])
    yield (
        f"{document['requests']:,} sent at once, then waited for: answers a second, and "
        "microseconds of CPU for each, by process."
    )
    yield table(
        ("side", "answers/s", f"/ {first}", *parts),
        [
            (
                side, spread(rates_of(of)).median, ratio(rates_of(of), bare),
                *(spread([run["cpu"][part] for run in of]).median for part in parts),
            )
            for side, of in found.items()
        ],
    )  # fmt: skip
    yield "One at a time: milliseconds until the answer, and those of the steps alone."
    alone = {name: [step[name] for step in document["steps"]] for name in document["steps"][0]}
    yield table(
        ("side", "p50", "p99", f"p50 / {first}"),
        [
            *(
                (
                    side, spread(_halves(of)).median,
                    spread([run["times"]["p99"] for run in of]).median,
                    ratio(_halves(of), halves),
                )
                for side, of in found.items()
            ),
            *((name, median_of(of, "p50"), median_of(of, "p99"), "") for name, of in alone.items()),
        ],
    )  # fmt: skip
    yield plot("client")


def _halves(runs: Sequence[Mapping[str, Any]]) -> list[float]:
    """The p50 of each run."""
    return [run["times"]["p50"] for run in runs]
