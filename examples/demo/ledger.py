"""The books: every message that was sent against what became of it. Pure.

Where a message lies in Kafka (partition and offset) is known from the broker, and the journal names
the place of the message that ran. Copies of an id that were answered, and runs that a later copy
settled, are numbers in the journal. What is left has no trace: it was lost, and has to lie where
a loss is known from elsewhere, or it is unexplained.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from examples.demo.book import COALESCED, Book, ConfirmedMessage, JournalRow
from examples.demo.item import Way
from examples.demo.queue_ledger import QueueLedger, balance_queue

COALESCED_ENDS = frozenset({"done", "superseded/superseded"})
MALFORMED = "failed/malformed"
AGAIN_BY_ITSELF = frozenset({Way.RETRIED, Way.DEAD})
"""Ways of requests whose failed attempts the waiting queue runs again, and no copy."""


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
    superseded: int = 0
    """A newer one of the same reference took their place."""
    failed: Counter[str] = field(default_factory=Counter)
    """What else did not end well, by code, or by state where there is no code."""
    lost_at_commit: int = 0
    lost_in_killed: int = 0
    given_up: int = 0
    """Copies in the hand of a consumer that stopped: not run, as their request was parked."""
    queue: QueueLedger = field(default_factory=QueueLedger)
    """What the waiting queue did, in requests."""
    read_again: int = 0
    """Answers, not messages: what a consumer that died or stopped had run was taken once more."""
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
            + self.superseded + self.failed.total() + self.lost_at_commit + self.lost_in_killed
            + self.given_up
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
            "superseded": self.superseded,
            "failed": dict(sorted(self.failed.items())),
            "lost_at_commit": self.lost_at_commit,
            "lost_in_killed_process": self.lost_in_killed,
            "copies_given_up_at_stop": self.given_up,
            "waiting_queue": self.queue.as_json(),
            "read_again_and_answered": self.read_again,
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
        read_again=book.read_again,
    )
    untraced = _enter_places(book, ledger)
    _enter_copies(book, ledger, untraced)
    _enter_losses(book, ledger, untraced)
    _check_ends(book, ledger)
    _check_effects(book, ledger)
    ledger.queue = balance_queue(book, ledger.unexplained)
    return ledger


def _enter_places(book: Book, ledger: Ledger) -> dict[str, list[ConfirmedMessage]]:
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
    for row in _asked_by_messages(book):
        message = left.pop((row.partition, row.offset), None)
        if message is None or message.id != row.id:
            ledger.unexplained.append(f"{row.id}: its row names the place of no message of it")
        else:
            _enter_end(row, ledger)
    untraced: dict[str, list[ConfirmedMessage]] = defaultdict(list)
    for message in left.values():
        untraced["" if message.kind == "conflict" else message.id or ""].append(message)
    return untraced


def _asked_by_messages(book: Book) -> list[JournalRow]:
    """Rows but those that another request asked for: the queue's books have these."""
    return [row for row in book.rows if row.offset >= 0]


def _enter_end(row: JournalRow, ledger: Ledger) -> None:
    match row.state:
        case "done":
            ledger.done_once += 1
        case "rejected":
            ledger.rejected[row.code] += 1
        case "superseded":
            ledger.superseded += 1
        case _:
            ledger.failed[row.code or row.state] += 1


def _enter_copies(book: Book, ledger: Ledger, untraced: dict[str, list[ConfirmedMessage]]) -> None:
    """Accounts for copies that the journal only counts; takes them out of `untraced`."""
    runs: dict[str, list[int]] = defaultdict(list)
    for attempt in book.attempts:
        waits = book.waits.get(attempt.id)
        if waits is None or waits.way not in AGAIN_BY_ITSELF:
            runs[attempt.id].append(attempt.run)
    firsts = _firsts(book)
    stops = [gap for gap in book.gaps if gap.cause == "stopped"]
    # A consumer that stops compares no payloads: a conflict is answered, and counted, as a copy.
    given_up = [m for m in untraced[""] if any(gap.explains(m, copy=True) for gap in stops)]
    for row in _asked_by_messages(book):
        # Which copy was lost is not known: one that a loss explains, where there is such a one.
        copies = sorted(
            untraced.pop(row.id, ()),
            key=lambda m: sum(gap.explains(m, copy=m != firsts[m.id]) for gap in book.gaps),
        )
        answered = min(row.resends, len(copies))
        settled = sum(run < row.run for run in runs[row.id])
        settled = min(settled, len(copies) - answered)
        ledger.answered += answered
        ledger.settled_later += settled
        as_copies = sum(m.id == row.id for m in given_up)
        ledger.counted_twice += max(0, row.resends - answered - as_copies)
        untraced[row.id] = copies[answered + settled :]
    if ledger.counted_twice > book.suspects:
        ledger.unexplained.append(
            f"{ledger.counted_twice} answers in the journal are of no copy that was sent, and only "
            f"{book.suspects} records were looked up twice"
        )


def _firsts(book: Book) -> dict[str | None, ConfirmedMessage]:
    """Id -> its first message: all messages of one id lie in one partition."""
    return {m.id: m for m in sorted(book.messages, key=lambda m: m.offset, reverse=True)}


def _enter_losses(book: Book, ledger: Ledger, untraced: dict[str, list[ConfirmedMessage]]) -> None:
    """What is left has no trace: lost where a loss is known, else unexplained."""
    firsts = _firsts(book)
    room = [gap.room for gap in book.gaps]
    for message in (message for copies in untraced.values() for message in copies):
        for number, gap in enumerate(book.gaps):
            if room[number] > 0 and gap.explains(message, copy=message != firsts[message.id]):
                room[number] -= 1
                match gap.cause:
                    case "killed":
                        ledger.lost_in_killed += 1
                    case "commit":
                        ledger.lost_at_commit += 1
                    case "stopped":
                        ledger.given_up += 1
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
        coalesced = end == COALESCED and found in COALESCED_ENDS
        right = found if coalesced else end
        if found != right:
            ledger.unexplained.append(f"{request}: {found} in the journal, it should be {right}")
        if (told := book.answers.get(request, "nothing")) != right:
            ledger.unexplained.append(
                f"{request}: its producer was told {told}, it should be {right}"
            )
    sent = expected.keys() | {row.id for row in book.rows if row.offset < 0}
    ledger.unexplained += [
        f"{request}: in the journal, never sent" for request in rows.keys() - sent
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
