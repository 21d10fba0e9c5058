"""What must hold of commits, and of what ran after them. Pure; each returns what breaks it."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from math import inf

from tests.chaos.real.facts import Entry, Facts
from tests.chaos.real.traffic import CHECKED, COALESCING, DELAYED
from tests.support.committed_offsets import Landed
from tests.support.storm import instance_of

SLACK = 0.001
"""Seconds by which two clocks of one machine may differ."""
MAY_WAIT = DELAYED | COALESCING | CHECKED
"""Types that may wait in a row before they are first entered, and be so anywhere. The last of them
where a worker died between claim and entry, and the check found that nothing had happened."""


def confirmed_first(facts: Facts) -> list[str]:
    """I5: each message was first entered below a committed offset that carries the token of the one
    who took it, and after that was committed."""
    first = FirstCommits(facts)
    wrong = []
    for entry in first_entries(facts):
        since, at = first.allows(entry), entry.clock + facts.lead
        if since == inf:
            wrong.append(f"{entry.id} at {entry.partition}/{entry.offset} ran without its token")
        elif at < since - SLACK:
            wrong.append(f"{entry.id} at {entry.partition}/{entry.offset} ran {since - at:.3f} s"
                         " before its offset was committed")  # fmt: skip
    return wrong


def first_entries(facts: Facts) -> Iterator[Entry]:
    """The first one of each message of which it tells who had taken that."""
    seen: set[tuple[str, int, int]] = set()
    for entry in facts.entries:
        of = entry.id, entry.partition, entry.offset
        item = facts.ledger.items.get(entry.id)
        if of not in seen and (item is None or item.type not in MAY_WAIT):
            seen.add(of)
            yield entry


class FirstCommits:
    """When each instance first committed above an offset. Times are those of brokers; facts of
    earlier versions have none: all are 0 then, and only the order of offsets is judged."""

    def __init__(self, facts: Facts) -> None:
        self._of: defaultdict[tuple[int, str], list[Landed]] = defaultdict(list)
        for commit in facts.commits:
            rising = self._of[commit.partition, instance_of(commit.metadata)]
            if not rising or commit.offset > rising[-1].offset:
                rising.append(commit)
        self._names = facts.names
        # They may have handed over what they had not started.
        self._stopped = {
            name: facts.stopped_at.get(name, 0.0) + facts.lead
            for name, how in facts.how.items() if how == "stopped"
        }  # fmt: skip

    def allows(self, entry: Entry) -> float:
        """From when on this instance may have run it; never is `inf`."""
        own = self._above(entry, self._names.get(entry.main, ""))
        handed = (max(self._above(entry, name), told) for name, told in self._stopped.items())
        return min(own, *handed, inf)

    def _above(self, entry: Entry, name: str) -> float:
        rising = self._of.get((entry.partition, name), [])
        at = bisect_right(rising, entry.offset, key=lambda commit: commit.offset)
        return rising[at].at if at < len(rising) else inf


def never_backwards(facts: Facts) -> list[str]:
    """I6: no instance puts its own offset back."""
    last: dict[tuple[int, str], int] = {}
    wrong = []
    for commit in facts.commits:
        key = (commit.partition, instance_of(commit.metadata))
        if commit.offset < last.get(key, 0):
            wrong.append(f"partition {key[0]}: {last[key]} to {commit.offset} by {key[1]}")
        last[key] = commit.offset
    return wrong
