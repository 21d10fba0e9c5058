"""What must hold of handlers that were entered again, and why each of them was. Pure.

docs/reliability.md promises one effect, not one entry: "of handlers". Some entries are excluded
all the same, and those are judged; the others are counted by what is known of the one before.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.chaos.real.books import FORGOTTEN
from tests.chaos.real.facts import Entry, Facts, Spot
from tests.chaos.real.traffic import CHECKED, EFFECTS, NOT_AGAIN

FAILED = "a run before it failed and was tried again"
KILLED = "its instance was killed"
STOPPED = "its instance was told to stop"
WORKER_ENDED = "its worker had ended"
ELSEWHERE = "another instance had the partition, or the row that waited"
OTHER_WORKER = "another worker of its instance had the row that waited, or the chunk"
SAME_WORKER = "its chunk was rolled back: for a neighbour, a deadlock or a connection"


def not_entered_again(facts: Facts) -> list[str]:
    """What must not be run again by itself is entered by one worker, each copy of it."""
    who: defaultdict[str, dict[Spot, set[int]]] = defaultdict(lambda: defaultdict(set))
    for entry in facts.entries:
        if _type(facts, entry.id) in NOT_AGAIN:
            who[entry.id][entry.partition, entry.offset].add(entry.worker)
    return [
        f"{name} at {spot} was entered by workers {sorted(workers)}"
        for name, spots in who.items()
        for spot, workers in spots.items()
        if len(workers) > 1
    ]


def calls_are_entered_once(facts: Facts) -> list[str]:
    """A call outside of which nobody can ask is entered once, whatever happened and is sent."""
    blind = {name for name, effect in EFFECTS.items() if effect == "external"} - CHECKED
    times = Counter(e.id for e in facts.entries if _type(facts, e.id) in blind)
    return [f"{name} was entered {n} times" for name, n in times.items()
            if n > 1 and name not in facts.retried]  # fmt: skip


def nothing_is_entered_after_its_end(facts: Facts) -> list[str]:
    """Once an instance has told that a message is done, it does not enter its handler again.

    Of messages that another instance had done, or of which another copy was, nothing is said: two
    may have them in hand side by side, and the journal lets one of them count.
    """
    if any(struck.kind == FORGOTTEN for struck in facts.struck):
        return []  # what is forgotten runs once more
    ran = {(e.id, e.partition, e.offset, e.main) for e in facts.effects}
    return [
        f"{entry.id} at {entry.partition}/{entry.offset} was entered again by instance"
        f" {entry.main}, which had told that it is done"
        for entry in entered_after_done(facts)
        if (entry.id, entry.partition, entry.offset, entry.main) in ran
    ]


def entered_after_done(facts: Facts) -> list[Entry]:
    """Entries that were made when a witness had heard that their request is done."""
    return [
        entry for entry in facts.entries
        if EFFECTS.get(_type(facts, entry.id), "transaction") == "transaction"
        and (told := facts.heard.final.get(entry.id)) is not None
        and told.state == "done" and entry.at >= told.entries
    ]  # fmt: skip


def entered_again(facts: Facts) -> Counter[str]:
    """Entries of a message after its first one, by what is known of the entry before."""
    last = {e.worker: n for n, e in enumerate(facts.entries)}
    failed = Counter(facts.failed_runs)
    found: Counter[str] = Counter()
    for before, after, n in _pairs(facts):
        if failed[after.id] > 0:
            failed[after.id] -= 1
            found[FAILED] += 1
        elif before.main != after.main:
            how = facts.how.get(facts.names.get(before.main, ""), "")
            found[{"killed": KILLED, "stopped": STOPPED}.get(how, ELSEWHERE)] += 1
        elif before.worker == after.worker:
            found[SAME_WORKER] += 1
        else:
            found[OTHER_WORKER if last[before.worker] > n else WORKER_ENDED] += 1
    return found


def _pairs(facts: Facts) -> Iterator[tuple[Entry, Entry, int]]:
    """Each further entry of a message with the one before, and its number among all."""
    before: dict[tuple[str, Spot], Entry] = {}
    for n, entry in enumerate(facts.entries):
        of = entry.id, (entry.partition, entry.offset)
        if of in before:
            yield before[of], entry, n
        before[of] = entry


def _type(facts: Facts, name: str) -> str:
    item = facts.ledger.items.get(name)
    return item.type if item is not None else ""
