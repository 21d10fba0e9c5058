"""What was found of one round, and what of it is not as it has to be. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.chaos.real.members import CODES

ENTERED_TWICE = 0.001
"""Share of handlers that may be entered twice where nothing is killed."""
ENDS: Mapping[str, frozenset[str]] = {
    "step": frozenset({"done/ok"}),
    "once": frozenset({"done/ok", "failed/instance_died"}),
    "charge": frozenset({"done/ok", "in_doubt/worker_died"}),
}
"""How a request of each type may end where main processes are killed and nobody sends again."""
ENTERED_ONCE = frozenset({"once", "charge"})
PASSED = "PASSED: nothing lost, nothing twice, nothing sent again"
SUMMED = (
    *("kills", "sent", "malformed", "lost", "malformed lost", "malformed twice", "effects twice"),
    *(
        "out of key order",
        "out of key order, in flight at a kill",
        "entered twice",
        "entered twice that must not be",
    ),
)
"""Facts that are told of all rounds together."""


class Step(NamedTuple):
    """One effect."""

    id: str
    key: str
    number: int
    """Of the request, among those of its key."""
    main: int
    """The main process above the worker that left it."""


@dataclass
class Books:
    """All that is known of a round when it is over."""

    sent: Mapping[str, str]
    """Type by id."""
    malformed: Collection[tuple[int, int]]
    """(partition, offset) of each."""
    not_sent: int
    steps: Sequence[Step]
    """In their order."""
    rows: Mapping[str, str]
    """`state/code` by id."""
    letters: Mapping[tuple[int, int], int]
    """How many dead letters there are of a (partition, offset)."""
    entries: Mapping[str, int]
    """How often the handler of an id was entered."""
    given_up: int = 0
    """Gaps that were read for the last time, as six owners in a row were about to die over them."""
    read_again: int = 0
    killed: Collection[int] = ()
    """Main processes that were killed."""
    exit_codes: Mapping[int, int] = field(default_factory=dict)
    """How often one that was told to stop ended with this code."""


@dataclass
class Verdict:
    """Figures, and complaints."""

    title: str
    facts: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def zero(self, name: str, value: int) -> None:
        """This has to be nothing."""
        self.facts[name] = value
        if value:
            self.wrong.append(f"{name}: {value}")


def judge(title: str, books: Books, *, killed: int) -> Verdict:
    """Compares what was sent, effects, journal and entries; `killed`: how many main processes."""
    verdict = Verdict(title)
    sent, rows = books.sent, books.rows
    effects = Counter(step.id for step in books.steps)
    written = {name for name, kind in sent.items() if kind != "charge"}
    done = {name for name in written if rows.get(name, "").startswith("done/")}
    verdict.facts |= {"sent": len(sent), "malformed": len(books.malformed), "kills": killed}
    verdict.zero("not sent", books.not_sent)
    verdict.zero("gaps given up", books.given_up)
    verdict.zero("lost", sum(name not in rows for name in sent))
    ended = Counter(rows[name] for name, kind in sent.items()
                    if name in rows and rows[name] not in ENDS[kind])  # fmt: skip
    for how, n in ended.items():
        verdict.zero(f"ended {how}", n)
    malformed = set(books.malformed)
    verdict.zero("malformed lost", len(malformed - books.letters.keys()))
    verdict.zero("malformed twice", sum(books.letters[place] > 1 for place in books.letters))
    verdict.zero("dead letters of others", len(books.letters.keys() - malformed))
    verdict.zero("effects twice", sum(n > 1 for n in effects.values()))
    verdict.zero("journal and effects differ", len(done ^ effects.keys()))
    disorder = out_of_order(books.steps)
    in_flight = [step for step in disorder if step.main in books.killed]
    verdict.zero("out of key order", len(disorder) - len(in_flight))
    verdict.facts["out of key order, in flight at a kill"] = len(in_flight)
    stopped = Counter(books.exit_codes)
    verdict.facts["told to stop"] = stopped.total()
    verdict.zero("ended with another code", sum(n for c, n in stopped.items() if c not in CODES))
    single = {name for name, kind in sent.items() if kind in ENTERED_ONCE}
    if single:
        verdict.zero(
            "entered twice that must not be", sum(books.entries.get(n, 0) > 1 for n in single)
        )
        charged = {name for name in single if sent[name] == "charge"}
        verdict.zero("done and never called", sum(
            rows.get(n) == "done/ok" and not books.entries.get(n) for n in charged))  # fmt: skip
        for kind in ENTERED_ONCE:
            unknown = sum(sent[n] == kind and rows.get(n) != "done/ok" for n in single)
            verdict.facts[f"{kind} not known to be done"] = unknown
    twice = sum(n - 1 for n in books.entries.values() if n > 1)
    verdict.facts["entered twice"] = twice
    verdict.facts["read again and answered"] = books.read_again
    if not killed and twice > ENTERED_TWICE * max(1, len(sent)):
        verdict.wrong.append(f"entered twice: {twice} of {len(sent)}")
    return verdict


def out_of_order(steps: Sequence[Step]) -> list[Step]:
    """Effects that stand behind a later one of their key."""
    highest: dict[str, int] = {}
    found = []
    for step in steps:
        if step.number < highest.get(step.key, 0):
            found.append(step)
        highest[step.key] = max(highest.get(step.key, 0), step.number)
    return found


def figures(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """All rounds in numbers: sums, and each by itself."""
    wrong = [f"{one.title}: {line}" for one in verdicts for line in one.wrong]
    sums = {name: sum(int(one.facts.get(name, 0)) for one in verdicts) for name in SUMMED}
    peace = [one for one in verdicts if not one.facts.get("kills")]
    return {
        "verdict": "; ".join(wrong) or PASSED,
        **sums,
        "entered twice in peace": sum(int(one.facts.get("entered twice", 0)) for one in peace),
        "rounds": {one.title: one.facts for one in verdicts},
    }
