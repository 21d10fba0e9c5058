"""What must hold of statuses: those that were heard, and those that stand at the end. Pure.

What is allowed besides stands in docs/reliability.md, "Of statuses and answers": a status may be
lost, so an older one may stand; and of types without rows nobody looks whether a copy has ended.
"""

from __future__ import annotations

from tests.chaos.real.books import FORGOTTEN
from tests.chaos.real.facts import Facts, Row, Status
from tests.chaos.real.traffic import EFFECTS
from tests.chaos.real.witness import Final

FOR_GOOD = frozenset({"done", "rejected", "superseded"})
"""States that no operator reopens."""
OF_ITS_RUN = frozenset({"failed", "dead", "cancelled"})
"""States after which only another run, with a number of its own, comes to another one."""
SETTLED = OF_ITS_RUN | {"in_doubt"}
NEEDS_ROW = frozenset({"waiting", "dead", "cancelled", "in_doubt", "failed"}) | FOR_GOOD


def final_statuses_stay(facts: Facts) -> list[str]:
    """I8: what was told to be final is never told to be another thing, but for what an operator
    has retried."""
    return [
        f"{name}: told {before.state} (run {before.v[:5]}), then {after.state} ({after.v[:5]})"
        for name, before, after in facts.heard.changed
        if not _may_change(facts, name, before, after)
    ]


def _may_change(facts: Facts, name: str, before: Final, after: Final) -> bool:
    states = {before.state, after.state}
    if states <= FOR_GOOD:
        return False
    if name in facts.retried:
        return before.v != after.v
    # A copy of what is dead and has no row for its result is computed all the same; and what a
    # database has forgotten runs once more.
    return _without_rows(facts, name) or _forgot(facts)


def statuses_agree(facts: Facts) -> list[str]:
    """No status says what the journal contradicts: those in Redis at the end, what the producer
    went by, and the last final one that was heard of each."""
    wrong = []
    for name, status in facts.statuses.items():
        if (why := _contradiction(facts, name, status)) is not None:
            wrong.append(f"{facts.ledger.items[name].type} {name}: {_words(status)}, {why}")
    for name, (state, code) in facts.ledger.ends.items():
        told = Status(state, code)
        if (why := _contradiction(facts, name, told)) is not None:
            wrong.append(f"{name}: its producer was told {_words(told)}, {why}")
    for name, final in facts.heard.final.items():
        if name in facts.ledger.items or name in facts.rows:
            told = Status(final.state, "", int(final.v[:5]))
            if (why := _contradiction(facts, name, told)) is not None:
                wrong.append(f"{name}: a witness has heard {_words(told)}, {why}")
    return wrong


def _contradiction(facts: Facts, name: str, status: Status) -> str | None:
    row = facts.rows.get(name)
    if row is None:
        return "no row" if _wants_row(facts, name, status) else None
    if _without_rows(facts, name) and row.state not in FOR_GOOD:
        return None  # a copy that was computed after the end that was told
    if status.state in FOR_GOOD:
        differs = row.state != status.state
    elif not status.has_row or not status.run or _forgot(facts):
        differs = False  # its number is not one of the journal's
    elif status.state in OF_ITS_RUN and status.run == row.run:
        differs = row.state != status.state
    else:
        differs = status.state in SETTLED and status.run > row.run
    return _row(row) if differs else None


def _wants_row(facts: Facts, name: str, status: Status) -> bool:
    """Whether a row has to stand behind it."""
    if _without_rows(facts, name):
        # Its row goes when it has ended, and the status that says so may be lost.
        return status.state == "in_doubt" or (status.state == "dead" and name not in facts.retried)
    return status.state in NEEDS_ROW and status.has_row


def _without_rows(facts: Facts, name: str) -> bool:
    item = facts.ledger.items.get(name)
    return item is not None and EFFECTS.get(item.type) == "none"


def _forgot(facts: Facts) -> bool:
    return any(struck.kind == FORGOTTEN for struck in facts.struck)


def _words(status: Status) -> str:
    run = f" of run {status.run}" * bool(status.run)
    return f"status {status.state}" + f"/{status.code}" * bool(status.code) + run


def _row(row: Row) -> str:
    return f"the row says {row.state}/{row.code} of run {row.run}"
