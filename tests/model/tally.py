"""What simulated schedules came to: their figures, for a terminal and for a page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.support.published import version

FAULTS = frozenset(
    {
        *("a COMMIT is unclear", "a claim's answer is lost", "a clock jumps"),
        *("a commit arrives whose sender has given up", "a member is frozen"),
        *("a connection breaks with a commit on it", "a member is killed", "a member is stopped"),
        *("a member joins", "a rebalance without a cause", "a transaction is lost"),
        *("a worker dies", "an open commit is given up", "another number of workers"),
        *("the maintenance process renews no leases", "a recall while a record is read"),
        "others may be at it",
        *("committed offsets cannot be read", "members are put out", "no worker starts"),
        *("nobody can say where to begin", "other limits", "a status is lost", "Redis is flushed"),
        *("Redis is restored from before", "Redis is away"),
        *("the answer to a commit is lost", "the database is away"),
    }
)
"""What is counted and is a fault, besides errors of commits; the rest follows from them."""


@dataclass(slots=True)
class Tally:
    """What schedules came to."""

    schedules: Counter[str] = field(default_factory=Counter)
    """World -> how many."""
    happened: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    """Simulated ones."""
    broken: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Takes what other schedules came to."""
        self.schedules.update(other.schedules)
        self.happened.update(other.happened)
        self.seconds += other.seconds
        self.broken += other.broken

    @property
    def faults(self) -> Counter[str]:
        """By kind."""
        return Counter({what: n for what, n in self.happened.items() if _is_fault(what)})

    def as_text(self, took: float) -> str:
        """Lines for a terminal, the verdict last; `took` seconds."""
        count = self.schedules.total()
        lines = [f"{kind}: {n:,} schedules" for kind, n in sorted(self.schedules.items())]
        lines.append(f"{self.faults.total():,} faults of {len(self.faults)} kinds:")
        lines += [f"  {n:>12,}  {what}" for what, n in self.faults.most_common()]
        lines.append("what came of them:")
        lines += [f"  {n:>12,}  {what}" for what, n in (self.happened - self.faults).most_common()]
        lines.append(
            f"{count:,} schedules, {self.seconds / 3600:,.1f} simulated hours, {took:,.0f} s "
            f"({count / took:,.0f} a second): {len(self.broken):,} broken"
        )
        return "\n".join([*lines, ""])

    def as_json(self, run: Mapping[str, object]) -> str:
        """The same for `docs/reliability`, with what is to be known of the run."""
        faults = self.faults
        figures = {
            "verdict": f"{len(self.broken):,} broken",
            "schedules": self.schedules.total(),
            "schedules by world": dict(sorted(self.schedules.items())),
            "simulated hours": round(self.seconds / 3600, 1),
            **run,
            "version": version(),
            "faults": faults.total(),
            "kinds of faults": len(faults),
            "faults by kind": dict(faults.most_common()),
            "what came of them": dict((self.happened - faults).most_common()),
            "broken": self.broken,
        }
        return json.dumps(figures, indent=1) + "\n"


def _is_fault(what: str) -> bool:
    return what in FAULTS or what.startswith("error ")
