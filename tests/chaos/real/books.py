"""The books: what became of every message that the broker has confirmed. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from math import inf

from tests.chaos.real.facts import Facts, Spot
from tests.chaos.real.faults import Struck
from tests.chaos.real.producer import Copy
from tests.chaos.real.traffic import CHECKED, NOT_AGAIN, Kind
from tests.chaos.real.witness import WITHOUT_ROW
from tests.support.storm import instance_of

CAUSES = {"killed": "main process killed", "stopped": "instance stopped"}
"""What may have become of messages that an instance had committed, by how it ended."""
REFUSED = "refused while the database was away, or at a stop"
UNHEARD = "refused while the database was away, when nobody could hear of it"
FORGOTTEN = "database_forgets_commits"
"""The fault in which a database comes back without its last transactions."""
FORGOT = "forgotten by the database after its commit"
UNKNOWN = "no cause is known"
REFUSALS = frozenset(f"failed/{code}" for code in WITHOUT_ROW)
"""What a producer is told of a copy that was refused. Any other end stands in a row."""
IN_DOUBT = "in_doubt"
TELLERS_DIE = {"main_killed", "members_storm", "maintenance_killed", "maintenance_stopped"}
"""Faults that end a maintenance process, which tells refusals, or keep it from telling them."""
IN_HAND, COMING_BACK = 10.0, 5.0
"""Seconds that a message waits in an instance at least, and that a database takes to be used
again."""


@dataclass
class Books:
    """I11: sends = executed + answered (at once or when read again) + settled + ended + dead
    letters + lost for a cause."""

    sent: int = 0
    executed: int = 0
    answered: int = 0
    """From the journal: nothing ran."""
    settled: int = 0
    """Copies that may have had a call outside looked for while its row was settled otherwise: no
    entry, no resend. One of each request that is known to have been in doubt."""
    ended: int = 0
    """Copies that `failed` as they may have run, before a later one ran: the row is that one's."""
    answered_again: int = 0
    """Copies that were read again when another copy of their id had run; not counted as resends."""
    letters: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    """First copies without a trace, by the cause that is known of the place where they lay."""
    lost_later: Counter[str] = field(default_factory=Counter)
    """The same of copies that were sent when nothing had been heard of the first one."""
    lost_bad: Counter[str] = field(default_factory=Counter)
    """The same of messages that nobody sends again."""
    unexplained: list[str] = field(default_factory=list)


def balance(facts: Facts) -> Books:
    """Makes the books."""
    books = Books(sent=len(facts.ledger.copies))
    takers = Takers(facts)
    refusals = Refusals(facts)
    doubted = set(doubts(facts))
    ran = runs_with_a_trace(facts)
    for name, copies in _without_a_trace(facts, books, takers, refusals).items():
        row = facts.rows.get(name)
        again = [c for c in copies if row is not None and _was_read_again(facts, c)]
        books.answered_again += len(again)
        copies = [c for c in copies if c not in again]  # noqa: PLW2901 - what is left of them
        answered = min(len(copies), row.resends if row is not None else 0)
        books.answered += answered
        if facts.ledger.items[name].type in NOT_AGAIN and row is not None:
            ended = min(len(copies) - answered, max(0, row.run - ran[name]))
            books.ended += ended
            answered += ended
        # Those that have a known cause of loss count as lost first.
        copies.sort(key=lambda c: not takers.cause((c.partition, c.offset)))
        for copy in copies[: len(copies) - answered]:
            cause = refusals.take(copy) or forgotten(facts, copy)
            cause = cause or takers.cause((copy.partition, copy.offset))
            if not cause and name in doubted and facts.ledger.items[name].type in CHECKED:
                doubted.remove(name)
                books.settled += 1
                continue
            (books.lost_later if copy.number else books.lost)[cause or UNKNOWN] += 1
            if not cause:
                books.unexplained.append(f"{name} at {copy.partition}/{copy.offset}")
    return books


def _without_a_trace(
    facts: Facts, books: Books, takers: Takers, refusals: Refusals
) -> dict[str, list[Copy]]:
    """Enters copies whose place is known from elsewhere; the others by id."""
    entered: set[Spot] = {(e.partition, e.offset) for e in facts.entries}
    letters = {spot for spot, _ in facts.letters}
    untraced: defaultdict[str, list[Copy]] = defaultdict(list)
    for copy in facts.ledger.copies:
        spot = (copy.partition, copy.offset)
        row = facts.rows.get(copy.id)
        if spot in letters:
            books.letters += 1
        elif copy.kind is not Kind.REQUEST:
            told = refusals.take(copy) if copy.kind is Kind.CONFLICT else ""
            cause = told or forgotten(facts, copy) or takers.cause(spot)
            books.lost_bad[cause or UNKNOWN] += 1
            if not cause:
                books.unexplained.append(f"{copy.kind} {copy.id} at {spot}")
        elif spot in entered or (row is not None and (row.partition, row.offset) == spot):
            books.executed += 1
        else:
            untraced[copy.id].append(copy)
    return untraced


def runs_with_a_trace(facts: Facts) -> Counter[str]:
    """How many copies of each id were entered, or have its row. A row counts all that ran."""
    seen = {(e.id, e.partition, e.offset) for e in facts.entries}
    seen |= {(row.id, row.partition, row.offset) for row in facts.rows.values()}
    return Counter(name for name, *_ in seen)


def doubts(facts: Facts) -> dict[str, float]:
    """Requests that were in doubt at some time, and since when that is known.

    The producer or a witness was told so, the answer to the call was lost, or the row says so.
    """
    since = {name: inf for name, row in facts.rows.items() if row.state == IN_DOUBT}
    since |= dict.fromkeys(facts.lost_answers, inf)
    told = [(at, name) for at, name, end in facts.ledger.refusals if end.startswith(IN_DOUBT)]
    told += [
        (facts.ledger.ended_at.get(name, inf), name)
        for name, (state, _) in facts.ledger.ends.items() if state == IN_DOUBT
    ]  # fmt: skip
    told += [(at, name) for name, at in facts.heard.doubted.items()]
    for at, name in told:
        since[name] = min(at, since.get(name, inf))
    return since


def _was_read_again(facts: Facts, copy: Copy) -> bool:
    return any(
        partition == copy.partition and mark <= copy.offset < committed
        for partition, mark, committed in facts.read_again
    )


class Refusals:
    """Copies that were refused: of each id so many as producers were told of.

    What is told comes before other causes: what was refused is not lost at a kill.
    """

    def __init__(self, facts: Facts) -> None:
        self._left = Counter(facts.heard.refused)
        for _, name, end in facts.ledger.refusals:
            if end in REFUSALS:
                self._left[name] = max(1, self._left[name])
        latency = sorted(answered - first for first, answered in facts.ledger.answered)
        longest = max(IN_HAND, latency[int(0.99 * len(latency))] if latency else 0.0)
        self._unheard = [
            (away.began - longest, away.ended + COMING_BACK)
            for away in facts.struck
            if away.kind.startswith("database") and _could_not_be_heard(facts, away)
        ]

    def take(self, copy: Copy) -> str:
        """The cause, where it was refused; "" where nothing says so. Each telling counts once."""
        if self._left[copy.id] > 0:
            self._left[copy.id] -= 1
            return REFUSED
        if any(begin < copy.at < end for begin, end in self._unheard):
            return UNHEARD
        return ""


def _could_not_be_heard(facts: Facts, away: Struck) -> bool:
    """Whether refusals of that time may have been lost: nobody listened, or who tells them died."""
    end = away.ended + COMING_BACK
    return facts.heard.was_deaf(away.began, end) or any(
        s.kind in TELLERS_DIE and s.began < end and s.ended > away.began for s in facts.struck
    )


def forgotten(facts: Facts, copy: Copy) -> str:
    """The cause, where its row or dead letter may be among what the database has forgotten."""
    return FORGOT * any(
        s.kind == FORGOTTEN and s.began - IN_HAND < copy.at < s.ended for s in facts.struck
    )


class Takers:
    """Who committed each offset first, and what became of that instance."""

    def __init__(self, facts: Facts) -> None:
        self._how = facts.how
        self._ends: defaultdict[int, list[int]] = defaultdict(list)
        self._names: defaultdict[int, list[str]] = defaultdict(list)
        for commit in facts.commits:
            ends = self._ends[commit.partition]
            if not ends or commit.offset > ends[-1]:
                ends.append(commit.offset)
                self._names[commit.partition].append(instance_of(commit.metadata))

    def cause(self, spot: Spot) -> str:
        """Why what lay there may have been lost; "" where nothing is known, or nobody has taken
        it."""
        partition, offset = spot
        at = bisect_right(self._ends[partition], offset)
        if at >= len(self._ends[partition]):
            return ""
        how = self._how.get(self._names[partition][at], "")
        return CAUSES.get(how, "")
