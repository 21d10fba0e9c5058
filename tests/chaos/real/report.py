"""The report of a run: one HTML page that needs no network, and the same figures as JSON. Pure."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from statistics import fmean
from typing import Any

from tests.chaos.real.books import Books, balance
from tests.chaos.real.checks import kept_order
from tests.chaos.real.episode import Outcome
from tests.chaos.real.gateway_facts import GatewayFacts
from tests.chaos.real.more_figures import (
    EFFECT_KINDS,
    MEANING,
    by_effect,
    of_checks,
    of_doubts,
    of_orders,
)
from tests.chaos.real.plots import plot
from tests.chaos.real.resources import MAIN, PROGRAMS, Sample
from tests.chaos.real.timeline import buckets, effective, quantile, recoveries, throughput

STYLE = """
:root{color-scheme:light dark;--fg:#1b1b1b;--bg:#fff;--mute:#667;--line:#d8dee4;--shade:#f3d9a4}
@media(prefers-color-scheme:dark){:root{--fg:#e6e6e6;--bg:#15181c;--mute:#9aa;--line:#333a44;
--shade:#4d3d16}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--fg);background:var(--bg);max-width:960px;
margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
td,th{text-align:left;padding:.25rem .6rem;border-bottom:1px solid var(--line);
vertical-align:top}
td.n,th.n{text-align:right}.good{color:#2b8a3e}.bad{color:#c92a2a}
svg{width:100%;height:auto;margin:.5rem 0}svg text{font:11px system-ui;fill:var(--mute)}
svg polyline{fill:none;stroke-width:1.5}svg .g{stroke:var(--line)}svg .w{fill:var(--shade);
opacity:.6}
.scroll{overflow-x:auto}small{color:var(--mute)}
"""


def figures(outcomes: Sequence[Outcome], run: Mapping[str, Any]) -> dict[str, Any]:
    """The run in numbers."""
    books = [balance(o.facts) for o in outcomes]
    faults = Counter(s.kind for o in outcomes for s in effective(o))
    vain = Counter(s.kind for o in outcomes for s in o.facts.struck if not s.evidence)
    recovery: defaultdict[str, list[float]] = defaultdict(list)
    for outcome in outcomes:
        for kind, seconds in recoveries(outcome).items():
            recovery[kind] += seconds
    everything = [answered - sent for o in outcomes for sent, answered in o.facts.ledger.answered]
    effects = [Counter(e.id for e in o.facts.effects) + o.facts.charges for o in outcomes]
    return {
        **run,
        "requests": sum(len(o.facts.ledger.items) for o in outcomes),
        "requests with a Kafka timestamp out of range": sum(
            item.timestamp != 0 for o in outcomes for item in o.facts.ledger.items.values()
        ),
        "messages": sum(b.sent for b in books),
        "ran": sum(b.executed for b in books),
        "duplicates suppressed": sum(b.answered for b in books),
        "answered when read again": sum(b.answered_again for b in books),
        "copies that met a doubt, and left no trace": sum(b.settled for b in books),
        "failed as they may have run, before a later copy ran": sum(b.ended for b in books),
        "dead letters": sum(b.letters for b in books),
        "effects": sum(c.total() for c in effects),
        "run twice": sum(n > 1 for c in effects for n in c.values()),
        "unexplained": sum(len(b.unexplained) for b in books),
        "lost at first attempt, by cause": total(b.lost for b in books),
        "later copies without a trace, by cause": total(b.lost_later for b in books),
        "bad input lost, by cause": total(b.lost_bad for b in books),
        "sent again, by cause": total(o.facts.ledger.resends for o in outcomes),
        "settled and sent again, by end": dict(
            Counter(what for o in outcomes for *_, what in o.facts.ledger.refusals)
        ),
        "requests through a gateway": sum(len(g.ids) for g in gateways_of(outcomes)),
        "what gateways answered": total(g.answers for g in gateways_of(outcomes)),
        "rows by state": dict(Counter(r.state for o in outcomes for r in o.facts.rows.values())),
        **of_doubts(outcomes),
        "dead, retried by the operator": sum(o.operator_retries for o in outcomes),
        "out of order as it was in flight at a kill": sum(kept_order(o.facts)[1] for o in outcomes),
        "gaps read again after a hand-over or a death": sum(
            len(o.facts.read_again) for o in outcomes
        ),
        "commits": sum(len(o.facts.commits) for o in outcomes),
        **of_checks(outcomes),
        **of_orders(outcomes),
        **rates(outcomes),
        "latency p50, s": round(quantile(everything, 0.5), 3),
        "latency p99, s": round(quantile(everything, 0.99), 3),
        "faults": faults.total(),
        "kinds of faults": len(faults),
        "faults by kind": dict(faults.most_common()),
        "without effect": dict(vain.most_common()),
        "recovery, s": {
            kind: {"p50": round(quantile(s, 0.5), 2), "p99": round(quantile(s, 0.99), 2)}
            for kind, s in sorted(recovery.items())
        },
    }


def gateways_of(outcomes: Sequence[Outcome]) -> list[GatewayFacts]:
    """Of episodes that have one."""
    return [o.facts.gateway for o in outcomes if o.facts.gateway is not None]


def rates(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Answers a second, the mean of all episodes, by what was at work."""
    during, calm = zip(*(throughput(outcome) for outcome in outcomes), strict=True)
    return {
        "answers a second during faults": round(fmean(during), 1),
        "answers a second in calm between faults": round(fmean(calm), 1),
    }


def total(counters: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for counter in counters:
        found.update(counter)
    return dict(found.most_common())


def page(outcomes: Sequence[Outcome], run: Mapping[str, Any]) -> str:
    """The page; `run`: what is known of it as a whole (seed, versions, verdict)."""
    told = figures(outcomes, run)
    parts = [
        *figure_tables(outcomes, told),
        "<h2>Episodes</h2>", episode_table(outcomes),
        *(part for outcome in outcomes for part in episode_plots(outcome)),
    ]  # fmt: skip
    title = ("Chaos on real parts", f"Chaos, seed {run['seed']}")
    return document(
        title, str(run["verdict"]), parts, good=not any(outcome.wrong for outcome in outcomes)
    )


def document(title: tuple[str, str], verdict: str, parts: Sequence[str], *, good: bool) -> str:
    """A page of these parts; `title`: what stands above it, and on its tab."""
    colour = "good" if good else "bad"
    return "\n".join([
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width,initial-scale=1'>",
        f"<title>{escape(title[1])}</title><style>{STYLE}</style>",
        f"<h1>{escape(title[0])}</h1><p class={colour}><b>{escape(verdict)}</b></p>",
        *parts, "</html>",
    ])  # fmt: skip


def figure_tables(outcomes: Sequence[Outcome], told: Mapping[str, Any]) -> list[str]:
    plain = {name: value for name, value in told.items() if not isinstance(value, dict)}
    tables = {
        name: value
        for name, value in told.items()
        if isinstance(value, dict) and name not in ("recovery, s", "faults by kind")
    }
    return [
        table(("figure", "value"), [(n, number(v)) for n, v in plain.items() if n != "verdict"]),
        "<h2>What the words mean</h2>",
        table(("word", "meaning"), [(escape(word), escape(meaning))
                                    for word, meaning in MEANING.items()]),
        "<h2>Faults that took effect</h2>",
        fault_table(outcomes, told),
        *(part for name, value in tables.items() if value for part in (
            f"<h2>{escape(name[0].upper() + name[1:])}</h2>",
            table(("", "n"), [(n, number(v)) for n, v in value.items()]),
        )),
    ]  # fmt: skip


def fault_table(outcomes: Sequence[Outcome], told: Mapping[str, Any]) -> str:
    example = {s.kind: s.evidence for o in outcomes for s in effective(o)}
    rows = [
        (kind, number(n), f"{told['recovery, s'].get(kind, {}).get('p50', '')}",
         f"{told['recovery, s'].get(kind, {}).get('p99', '')}", escape(example[kind][:110]))
        for kind, n in told["faults by kind"].items()
    ]  # fmt: skip
    head = ("kind", "seen to strike", "recovery p50, s", "p99, s", "what was seen (one of them)")
    return table(head, rows)


def episode_table(outcomes: Sequence[Outcome]) -> str:
    rows = []
    for outcome in outcomes:
        plan, books = outcome.plan, balance(outcome.facts)
        during, calm = throughput(outcome)
        rows.append((
            plan.protocol, plan.ordering, number(len(outcome.facts.ledger.items)),
            *(number(by_effect(outcome)[effect]) for effect in EFFECT_KINDS),
            number(len(effective(outcome))), f"{during:.0f}", f"{calm:.0f}", number(lost(books)),
            "; ".join(f"{name}: {len(lines)}" for name, lines in outcome.wrong.items()) or "none",
        ))  # fmt: skip
    head = ("protocol", "ordering", "requests", *EFFECT_KINDS, "faults",
            "answers/s in faults", "in calm", "copies lost", "problems")  # fmt: skip
    return table(head, rows)


def lost(books: Books) -> int:
    return books.lost.total() + books.lost_bad.total()


def episode_plots(outcome: Outcome) -> list[str]:
    plan, began = outcome.plan, outcome.began
    samples = [s for s in outcome.samples if s.at >= began]
    held = [
        plot(what, {
            program: [(s.at - began, s.most(field, program)) for s in samples]
            for program in (MAIN, *PROGRAMS)
        }, unit=unit)
        for what, field, unit in (
            ("largest memory of one process", "rss", "MiB"),
            ("most descriptors of one process", "descriptors", ""),
            ("most threads of one process", "threads", ""),
        )
    ]  # fmt: skip
    held.append(plot("processes, and connections of all of them", counts_of(samples, began)))
    return [
        f"<h3>{escape(plan.protocol)}, ordering {escape(plan.ordering)}</h3>",
        *load_plots(outcome),
        *held,
    ]


def counts_of(samples: Sequence[Sample], began: float) -> dict[str, list[tuple[float, float]]]:
    """How many processes and connections there are, over time."""
    found: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for sample in samples:
        found["processes"].append((sample.at - began, len(sample.held)))
        of_service = total(held.connections for held in sample.held)
        for service, n in sorted(of_service.items()):
            found[service].append((sample.at - began, n))
    return dict(found)


def windows_of(outcome: Outcome) -> list[tuple[float, float, str]]:
    """Begin and end of each fault, in seconds since the episode's begin, and what was seen."""
    began = outcome.began
    return [(s.began - began, s.ended - began, f"{s.kind}: {s.evidence}")
            for s in effective(outcome)]  # fmt: skip


def load_plots(outcome: Outcome) -> list[str]:
    """What producers saw."""
    windows, some, began = windows_of(outcome), buckets(outcome), outcome.began
    latency = {"p50": [(b.at, b.p50) for b in some], "p99": [(b.at, b.p99) for b in some]}
    pending = [(s.at - began, s.pending) for s in outcome.samples if s.at >= began]
    return [
        plot("requests a second", {"answered": [(b.at, b.rate) for b in some]}, windows),
        plot("latency", latency, windows, unit="s"),
        plot("without an answer", {"requests": pending}, windows),
    ]


def number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else escape(str(value))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are HTML already."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class=scroll><table><tr>{top}</tr>{body}</table></div>"


def as_json(outcomes: Sequence[Outcome], run: Mapping[str, Any]) -> str:
    return json.dumps(figures(outcomes, run), indent=1) + "\n"
