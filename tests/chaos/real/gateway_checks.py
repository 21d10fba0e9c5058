"""What must hold of requests that went through a gateway. Pure."""

from __future__ import annotations

from tests.chaos.real.facts import Facts
from tests.chaos.real.traffic import EFFECTS

UNKNOWN = "unknown"
FINAL = frozenset({"done", "rejected", "superseded", "cancelled"})


def gateway_answers_agree(facts: Facts) -> list[str]:
    """No answer was a wrong one, and the last ones say nothing that the journal contradicts."""
    if facts.gateway is None:
        return []
    wrong = list(facts.gateway.wrong)
    for name in sorted(facts.gateway.ids):
        told, row = facts.gateway.last.get(name), facts.rows.get(name)
        if told is None:
            wrong.append(f"{name}: the gateway did not answer when all was calm")
        elif row is None:
            if told == "done" and EFFECTS.get(facts.ledger.items[name].type) != "none":
                wrong.append(f"{name}: the gateway says {told}, and there is no row")
        elif told == UNKNOWN or (told != row.state and FINAL & {told, row.state}):
            wrong.append(f"{name}: the gateway says {told}, the row {row.state}/{row.code}")
    return wrong
