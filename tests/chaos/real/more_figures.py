"""Figures of what was judged and of orders, and what the words in a report mean. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf
from typing import Any

from tests.chaos.real.books import doubts
from tests.chaos.real.commit_checks import first_entries
from tests.chaos.real.connection_checks import lost_alone, lost_connections
from tests.chaos.real.entry_checks import entered_after_done, entered_again
from tests.chaos.real.episode import Outcome
from tests.chaos.real.facts import Facts
from tests.chaos.real.growth import growth
from tests.chaos.real.resources import MAIN, PROGRAMS
from tests.chaos.real.traffic import CHECKED, EFFECTS

EFFECT_KINDS = ("transaction", "external", "none")
MEANING = {
    "recovery": "seconds from a fault's end to the first answer to anything that was sent after it;"
    " other faults may have been at work meanwhile",
    "times that members were given partitions": "once for each member that a rebalance gives some:"
    " the line `partitions assigned` in its log",
    "times that members gave up partitions": "the same of the line `partitions revoked`, whether in"
    " peace or as they had lost them",
    "handlers entered again": "entries of one message after its first one; why, stands in the table"
    " of that name. How often a run before failed is the journal's word, the rest is known from how"
    " the instance or worker of the entry before ended",
    "processes judged for growth": "those that lived long enough under the watch, each by its own"
    " memory, descriptors, threads and connections",
    "orders judged for their key's order": "of keys that have one open order at a time, as of two"
    " that are open at once either may be first",
    "final statuses heard": "ids of which a witness heard a final status: no later one may differ",
    "lost connections judged alone": "single connections to the database that were lost with no"
    " other fault of the database or the machine ten seconds before and one after: nobody may have"
    " been refused",
    "in doubt, by what became of them and by whom": "`a copy`: one was sent again once the doubt"
    " was known, and has asked its check, or ran where that found nothing; `its check`: nobody had"
    " sent it again; `its own call`: of a type without a check, that ended after all; `never told`:"
    " its answer was lost, and no status in between was heard",
    "transaction, external, none": "the requests of an episode by the effect of their type",
}


def of_checks(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """How much the checks had to judge."""
    held = [growth(o.samples, o.plan.workers) for o in outcomes]
    again = [entered_again(o.facts) for o in outcomes]
    return {
        "first entries judged by commits": sum(1 for o in outcomes for _ in first_entries(o.facts)),
        "times that members were given partitions": said(outcomes, "partitions assigned"),
        "times that members gave up partitions": said(outcomes, "partitions revoked"),
        "handlers entered again": sum(c.total() for c in again),
        "handlers entered again, by cause": dict(sum(again, Counter[str]()).most_common()),
        "entered when another had it done": sum(len(entered_after_done(o.facts)) for o in outcomes),
        "final statuses heard": sum(len(o.facts.heard.final) for o in outcomes),
        "lost connections": sum(len(lost_connections(o.facts)) for o in outcomes),
        "lost connections judged alone": sum(len(lost_alone(o.facts)) for o in outcomes),
        "instances that were told to stop": sum(len(o.exit_codes) for o in outcomes),
        "their exit codes": dict(Counter(str(code) for o in outcomes for code in o.exit_codes)),
        "processes judged for growth": {
            program: sum(h.judged[program] for h in held) for program in (MAIN, *PROGRAMS)
        },
        "processes that lived too short for it": sum(h.too_short for h in held),
        "looks at the number of processes": sum(h.looks for h in held),
    }


def by_effect(outcome: Outcome) -> Counter[str]:
    """Its requests by the effect that their type has."""
    return Counter(
        EFFECTS.get(item.type, "transaction") for item in outcome.facts.ledger.items.values()
    )


def of_doubts(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Of requests that were in doubt at some time."""
    ends = Counter(end for o in outcomes for end in settled_doubts(o.facts))
    left = sum(r.state == "in_doubt" for o in outcomes for r in o.facts.rows.values())
    return {
        "in doubt and settled": ends.total() - left,
        "in doubt and left so": left,
        "in doubt, by what became of them and by whom": dict(ends.most_common()),
    }


def settled_doubts(facts: Facts) -> list[str]:
    """State in the end of each that was in doubt, and by whom it is in that."""
    found = []
    copies: dict[str, float] = {}
    for copy in facts.ledger.copies:
        copies[copy.id] = max(copy.at, copies.get(copy.id, 0.0))
    for name, since in doubts(facts).items():
        row, item = facts.rows.get(name), facts.ledger.items.get(name)
        if row is None:
            found.append("no row")
        elif row.state == "in_doubt":
            found.append("left in doubt")
        elif name in facts.retried:
            found.append(f"{row.state}, by the operator")
        elif copies.get(name, 0.0) > since:
            found.append(f"{row.state}, by a copy")
        elif since == inf:
            found.append(f"{row.state}, never told")
        else:
            checked = item is not None and item.type in CHECKED
            found.append(f"{row.state}, by {'its check' if checked else 'its own call'}")
    return found


def said(outcomes: Sequence[Outcome], line: str) -> int:
    return sum(o.said.get(line, 0) for o in outcomes)


def of_orders(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Of those that went through an outbox, where there are any."""
    orders = [o.facts.orders for o in outcomes if o.facts.orders is not None]
    if not orders:
        return {}
    committed = [name for one in orders for name in one.committed]
    paid = Counter(e.id for o in outcomes for e in o.facts.effects if e.type == "pay")
    return {
        "orders committed": len(committed),
        "orders rolled back": sum(one.begun for one in orders) - len(committed),
        "orders paid": sum(paid[name] > 0 for name in committed),
        "orders answered": len({name for one in orders for name, _ in one.answers}),
        "orders judged for their key's order": sum(len(one.spots) for one in orders),
        "orders sent again by a relay": sum(n > 1 for one in orders for n in one.sends.values()),
        "rows of the outbox, by state": dict(
            sum((one.rows for one in orders), Counter[str]()).most_common()
        ),
    }
