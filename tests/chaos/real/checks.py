"""What must hold after an episode, as functions of facts. Pure.

The invariants I1-I11 and which check is for which stand in docs/reliability/README.md. Each check
returns what breaks it, in words; `Books` are the figures beside.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

from tests.chaos.real.books import CAUSES, balance
from tests.chaos.real.commit_checks import confirmed_first, never_backwards
from tests.chaos.real.connection_checks import one_connection_is_no_outage
from tests.chaos.real.entry_checks import (
    calls_are_entered_once,
    not_entered_again,
    nothing_is_entered_after_its_end,
)
from tests.chaos.real.facts import Effect, Facts
from tests.chaos.real.gateway_checks import gateway_answers_agree
from tests.chaos.real.order_checks import (
    committed_orders_run_once,
    keys_keep_their_order,
    orders_are_answered_once,
)
from tests.chaos.real.status_checks import final_statuses_stay, statuses_agree
from tests.chaos.real.traffic import EFFECTS, IN_ORDER, Item, Kind


def effects_of_ids(facts: Facts) -> Counter[str]:
    """How many effects each id has, inside and outside."""
    return Counter(effect.id for effect in facts.effects) + facts.charges


def nothing_twice(facts: Facts) -> list[str]:
    """I1: effects per id are at most one."""
    return [f"{n} effects of {name}" for name, n in effects_of_ids(facts).items() if n > 1]


def nothing_lost(facts: Facts) -> list[str]:
    """I2: every valid id has come to one of the ends that it may have."""
    wrong = []
    for name, item in facts.ledger.items.items():
        end = end_of(facts, item)
        if end not in item.ends:
            wrong.append(f"{item.type} {name}: {end}, not {'/'.join(sorted(item.ends))}")
    return wrong


def end_of(facts: Facts, item: Item) -> str:
    row = facts.rows.get(item.id)
    if row is not None:
        return row.state
    if EFFECTS.get(item.type) == "none":
        return facts.ledger.ends.get(item.id, ("unanswered", ""))[0]
    return "no row"


def done_is_effect(facts: Facts) -> list[str]:
    """I3: done means an effect, and everything else none; in doubt means either."""
    effects, wrong = effects_of_ids(facts), []
    for name, item in facts.ledger.items.items():
        row = facts.rows.get(name)
        if EFFECTS.get(item.type) == "none" or row is None or row.state == "in_doubt":
            continue
        if (row.state == "done") != (effects[name] > 0):
            wrong.append(f"{item.type} {name}: {row.state}/{row.code} with {effects[name]} effects")
    wrong += [f"an effect of {name} and no row" for name in effects if name not in facts.rows]
    return wrong


def kept_order(facts: Facts) -> tuple[list[str], int]:
    """I7: of one lane, what was sent first ran first, over hand-overs too.

    Only first copies that were entered once: what was run again, or waited, has no order. Also
    returns how many are out of order as their lane was in hand when its instance was killed: what
    was in flight then is the only thing that may be.
    """
    if facts.ordering == "none":
        return [], 0
    first = {c.id: (c.partition, c.offset) for c in facts.ledger.copies if c.number == 0}
    times = Counter(entry.id for entry in facts.entries)
    lanes: defaultdict[object, list[Effect]] = defaultdict(list)
    for effect in facts.effects:
        spot = (effect.partition, effect.offset)
        if effect.type in IN_ORDER and first.get(effect.id) == spot and times[effect.id] == 1:
            lane = effect.partition if facts.ordering == "partition" else effect.key
            lanes[lane, effect.partition].append(effect)
    killed = {main for main, name in facts.names.items() if facts.how.get(name) == "killed"}
    wrong, in_flight = [], 0
    for name, ran in lanes.items():
        last = {effect.main: n for n, effect in enumerate(ran)}
        top = ran[0]
        for n, effect in enumerate(ran):
            if effect.offset > top.offset:
                top = effect
            elif effect.offset < top.offset:
                # Dead by now, it left something above of what it had in flight, and not this.
                if top.main != effect.main and top.main in killed and last[top.main] < n:
                    in_flight += 1
                else:
                    wrong.append(f"lane {name}: {effect.id} at {effect.offset} by {effect.main}"
                                 f" after {top.offset} by {top.main}")  # fmt: skip
    return wrong, in_flight


def bad_input_never_runs(facts: Facts) -> list[str]:
    """I9: conflicts and malformed messages are at most one dead letter each, and never run."""
    wrong = [f"the other payload of {e.id} ran" for e in facts.effects if e.n < 0]
    bad = {(c.partition, c.offset): c.kind for c in facts.ledger.copies if c.kind != Kind.REQUEST}
    for spot, times in Counter(spot for spot, _ in facts.letters).items():
        if times > 1:
            wrong.append(f"{times} dead letters at {spot}")
        if spot not in bad:
            wrong.append(f"a dead letter of a valid message at {spot}")
    wrong += [f"{kind} at {spot} ran" for e in facts.entries
              if (kind := bad.get(spot := (e.partition, e.offset)))]  # fmt: skip
    return wrong


def kills_lose_nothing(facts: Facts) -> list[str]:
    """What an instance had committed and not finished when it ended is run by the next one."""
    books = balance(facts)
    return [
        f"{n} {what} lost: {cause}"
        for what, lost in (
            ("requests", books.lost), ("copies", books.lost_later),
            ("bad messages", books.lost_bad),
        )
        for cause, n in lost.items()
        if cause in CAUSES.values()
    ]  # fmt: skip


def everything_is_read(facts: Facts) -> list[str]:
    """In the end the group has committed and finished all that its topic has."""
    return list(facts.unread)


def nothing_left(facts: Facts) -> list[str]:
    """I10: no process and no open transaction after the end; nobody ended by itself."""
    return [*facts.left, *facts.ended_by_itself]


CHECKS: dict[str, Callable[[Facts], list[str]]] = {
    "nothing twice": nothing_twice,
    "nothing lost": nothing_lost,
    "done is an effect": done_is_effect,
    "confirmed first": confirmed_first,
    "offsets never go back": never_backwards,
    "order of a lane": lambda facts: kept_order(facts)[0],
    "a final status stays": final_statuses_stay,
    "statuses agree with the journal": statuses_agree,
    "bad input never runs": bad_input_never_runs,
    "what may have run is not entered again": not_entered_again,
    "calls outside are entered once": calls_are_entered_once,
    "what is done is not entered again": nothing_is_entered_after_its_end,
    "everything was read to its end": everything_is_read,
    "nothing left behind": nothing_left,
    "one lost connection refuses nobody": one_connection_is_no_outage,
    "kills and stops lose nothing": kills_lose_nothing,
    "committed orders run once, others never": committed_orders_run_once,
    "orders are answered once": orders_are_answered_once,
    "orders of a key are sent in turn": keys_keep_their_order,
    "the gateway's answers agree with the journal": gateway_answers_agree,
    "every copy is accounted for": lambda facts: balance(facts).unexplained,
}
