"""The books: every message that was sent against what became of it. Pure.

Where a message lies in Kafka (partition and offset) is known from the broker, and the journal names
the place of the message that ran. Copies of an id that were answered, and runs that a later copy
settled, are numbers in the journal. What is left has no trace: it was lost, and has to lie where
a loss is known from elsewhere, or it is unexplained.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

MALFORMED = "failed/malformed"


class Message(NamedTuple):
    """One message as the broker confirmed it."""

    kind: str
    id: str | None
    expected: str
    """How its request has to end: "done", or state/code. A conflict's: "conflict"."""
    again: bool
    """Sent again, as no answer had come."""
    partition: int
    offset: int


class Row(NamedTuple):
    """A row of the journal; partition and offset are those of the message that ran last."""

    id: str
    state: str
    code: str
    run: int
    resends: int
    partition: int
    offset: int

    @property
    def end(self) -> str:
        """As `Message.expected` says it."""
        return self.state if self.state == "done" else f"{self.state}/{self.code}"


class Attempt(NamedTuple):
    """A run that did not succeed, of the journal."""

    id: str
    run: int


class Letter(NamedTuple):
    """A dead letter of the journal."""

    partition: int
    offset: int
    reason: str
    detail: str


class Gap(NamedTuple):
    """Where messages may have been lost, and how many at most."""

    cause: Literal["commit", "killed"]
    room: int
    below: Mapping[int, int] | None = None
    """Partition -> offset below which they lie; None: anywhere."""

    def explains(self, message: Message) -> bool:
        """Whether this message may have been lost here."""
        if self.room <= 0:
            return False
        return self.below is None or message.offset < self.below.get(message.partition, 0)


@dataclass(frozen=True, slots=True)
class Book:
    """All facts that the ledger is made of."""

    messages: Sequence[Message] = ()
    rows: Sequence[Row] = ()
    attempts: Sequence[Attempt] = ()
    letters: Sequence[Letter] = ()
    effects: Mapping[str, int] = field(default_factory=dict)
    """Id -> effects that it left: rows of the shop, calls of the card service."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """Id -> the end that its producer was told."""
    gaps: Sequence[Gap] = ()
    suspects: int = 0
    """Records that a killed worker had in hand: they were looked up once more."""


@dataclass(slots=True)
class Ledger:
    """What became of all messages. Numbers are messages, but where ids are listed."""

    sent: int = 0
    by_kind: Counter[str] = field(default_factory=Counter)
    resent: int = 0
    requests: int = 0
    """Different ids."""
    done_once: int = 0
    answered: int = 0
    """Answered from the journal, with nothing run."""
    settled_later: int = 0
    """Their run failed or was in doubt, and a later copy settled it."""
    rejected: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    """What else did not end well, by code, or by state where there is no code."""
    lost_at_commit: int = 0
    lost_in_killed: int = 0
    counted_twice: int = 0
    """Answers, not messages: those that a killed worker had committed and could not report."""
    run_twice: list[str] = field(default_factory=list)
    unexplained: list[str] = field(default_factory=list)
    """In words, one for each."""

    @property
    def accounted(self) -> int:
        """Messages of which it is known what became of them."""
        return (
            self.done_once + self.answered + self.settled_later + self.rejected.total()
            + self.failed.total() + self.lost_at_commit + self.lost_in_killed
        )  # fmt: skip

    @property
    def balanced(self) -> bool:
        """Whether every message is accounted for, once, and nothing ran twice."""
        return not self.run_twice and not self.unexplained and self.accounted == self.sent

    def as_json(self) -> dict[str, Any]:
        """The ledger as one JSON object."""
        return {
            "balanced": self.balanced,
            "sent": self.sent,
            "sent_by_kind": dict(sorted(self.by_kind.items())),
            "resent": self.resent,
            "requests": self.requests,
            "done_once": self.done_once,
            "answered_from_journal": self.answered,
            "settled_by_a_later_copy": self.settled_later,
            "rejected": dict(sorted(self.rejected.items())),
            "failed": dict(sorted(self.failed.items())),
            "lost_at_commit": self.lost_at_commit,
            "lost_in_killed_process": self.lost_in_killed,
            "answers_counted_twice": self.counted_twice,
            "accounted": self.accounted,
            "run_twice": sorted(self.run_twice),
            "unexplained": self.unexplained,
        }


def balance(book: Book) -> Ledger:
    """Makes the ledger."""
    messages = book.messages
    ledger = Ledger(
        sent=len(messages),
        by_kind=Counter(message.kind for message in messages if not message.again),
        resent=sum(message.again for message in messages),
        requests=len({message.id for message in messages if message.id is not None}),
    )
    untraced = _enter_places(book, ledger)
    _enter_copies(book, ledger, untraced)
    _enter_losses(book, ledger, untraced)
    _check_ends(book, ledger)
    _check_effects(book, ledger)
    return ledger


def _enter_places(book: Book, ledger: Ledger) -> dict[str, list[Message]]:
    """Accounts for messages whose place the journal names; returns the others by id.

    Those under "" are copies of nothing: conflicts, and messages without an id.
    """
    left = {(message.partition, message.offset): message for message in book.messages}
    if len(left) != len(book.messages):
        ledger.unexplained.append("two messages were confirmed at one place")
    for letter in book.letters:
        if left.pop((letter.partition, letter.offset), None) is None:
            ledger.unexplained.append(f"a dead letter of no message: {letter}")
        else:
            why = letter.reason if letter.reason == "conflict" else f"malformed: {letter.detail}"
            ledger.rejected[why] += 1
    for row in book.rows:
        message = left.pop((row.partition, row.offset), None)
        if message is None or message.id != row.id:
            ledger.unexplained.append(f"{row.id}: its row names the place of no message of it")
        elif row.state == "done":
            ledger.done_once += 1
        elif row.state == "rejected":
            ledger.rejected[row.code] += 1
        else:
            ledger.failed[row.code or row.state] += 1
    untraced: dict[str, list[Message]] = defaultdict(list)
    for message in left.values():
        untraced["" if message.kind == "conflict" else message.id or ""].append(message)
    return untraced


def _enter_copies(book: Book, ledger: Ledger, untraced: dict[str, list[Message]]) -> None:
    """Accounts for copies that the journal only counts; takes them out of `untraced`."""
    runs: dict[str, list[int]] = defaultdict(list)
    for attempt in book.attempts:
        runs[attempt.id].append(attempt.run)
    for row in book.rows:
        # Which copy was lost is not known: one that a loss explains, where there is such a one.
        copies = sorted(
            untraced.pop(row.id, ()),
            key=lambda copy: sum(gap.explains(copy) for gap in book.gaps),
        )
        answered = min(row.resends, len(copies))
        # The run that the row shows is settled by another copy only where the row is done: then it
        # was in doubt, and the copy had it checked.
        settled = sum(run < row.run or row.state == "done" for run in runs[row.id])
        settled = min(settled, len(copies) - answered)
        ledger.answered += answered
        ledger.settled_later += settled
        ledger.counted_twice += row.resends - answered
        untraced[row.id] = copies[answered + settled :]
    if ledger.counted_twice > book.suspects:
        ledger.unexplained.append(
            f"{ledger.counted_twice} answers in the journal are of no copy that was sent, and only "
            f"{book.suspects} records were looked up twice"
        )


def _enter_losses(book: Book, ledger: Ledger, untraced: dict[str, list[Message]]) -> None:
    """What is left has no trace: lost where a loss is known, else unexplained."""
    room = [gap.room for gap in book.gaps]
    for message in (message for copies in untraced.values() for message in copies):
        for number, gap in enumerate(book.gaps):
            if room[number] > 0 and gap.explains(message):
                room[number] -= 1
                if gap.cause == "killed":
                    ledger.lost_in_killed += 1
                else:
                    ledger.lost_at_commit += 1
                break
        else:
            ledger.unexplained.append(
                f"{message.id or 'a message without id'} ({message.kind}, partition "
                f"{message.partition}, offset {message.offset}): no trace, and no known loss there"
            )


def _check_ends(book: Book, ledger: Ledger) -> None:
    """Each request stands in the journal as it should, and its producer was told just that."""
    rows = {row.id: row.end for row in book.rows}
    expected = {m.id: m.expected for m in book.messages if m.id and m.kind != "conflict"}
    for request, end in expected.items():
        # What is malformed has no row: it is a dead letter.
        found = rows.get(request, MALFORMED if end == MALFORMED else "not there")
        if found != end:
            ledger.unexplained.append(f"{request}: {found} in the journal, it should be {end}")
        if (told := book.answers.get(request, "nothing")) != end:
            ledger.unexplained.append(
                f"{request}: its producer was told {told}, it should be {end}"
            )
    ledger.unexplained += [
        f"{request}: in the journal, never sent" for request in rows.keys() - expected
    ]


def _check_effects(book: Book, ledger: Ledger) -> None:
    """Done and one effect, or neither."""
    done = {row.id for row in book.rows if row.state == "done"}
    ledger.run_twice += [request for request, count in book.effects.items() if count > 1]
    ledger.unexplained += [
        f"{request}: done, and no effect" for request in done - book.effects.keys()
    ]
    ledger.unexplained += [
        f"{request}: an effect, and not done" for request in book.effects.keys() - done
    ]
