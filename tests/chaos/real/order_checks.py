"""What must hold of orders that went through an outbox. Pure; each returns what breaks it."""

from __future__ import annotations

from collections import Counter

from tests.chaos.real.facts import Facts

PAY = "pay"
ENDS = frozenset({"done/ok"})
"""Ends that an order may have had when its producer was told."""
REVIVED = "dead/"
"""What was dead has an effect all the same once the operator has retried it: the outbox hears of
the first end."""


def committed_orders_run_once(facts: Facts) -> list[str]:
    """Each committed order has one effect, and each rolled back none."""
    if facts.orders is None:
        return []
    effects = Counter(effect.id for effect in facts.effects if effect.type == PAY)
    committed = set(facts.orders.committed)
    wrong = [f"{effects[name]} effects of {name}" for name in committed if effects[name] != 1]
    return wrong + [f"{n} effects of {name}, which was rolled back" for name, n in effects.items()
                    if name not in committed]  # fmt: skip


def orders_are_answered_once(facts: Facts) -> list[str]:
    """Each committed order has one answer that its producer worked on, and it is the right one."""
    if facts.orders is None:
        return []
    times = Counter(name for name, _ in facts.orders.answers)
    committed = set(facts.orders.committed)
    wrong = [f"{times[name]} answers to {name}" for name in committed if times[name] != 1]
    wrong += [f"an answer to {name}, which was rolled back" for name in times.keys() - committed]
    wrong += [f"{name}: {end}" for name, end in facts.orders.answers
              if end not in ENDS and not end.startswith(REVIVED)]  # fmt: skip
    return wrong + [f"open in the outbox: {line}" for line in facts.orders.open]


def keys_keep_their_order(facts: Facts) -> list[str]:
    """Messages of a key are first in the topic as its rows are in the outbox.

    Where partitions are added keys move: then that holds within each.
    """
    if facts.orders is None:
        return []
    wrong = []
    for key, names in facts.orders.turns.items():
        last: dict[int, tuple[int, str]] = {}
        for name in names:
            if (spot := facts.orders.spots.get(name)) is None:
                continue
            partition, offset = spot
            before, other = last.get(partition, (-1, ""))
            if offset < before:
                wrong.append(f"{name} of {key} at {partition}/{offset}, and {other} at {before}")
            else:
                last[partition] = offset, name
    return wrong
