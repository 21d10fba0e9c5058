"""The demo's books: what they account for, and each way in which they must not balance."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from consumer import cli
from examples.demo.book import Book, ConfirmedMessage, FailedAttempt, Gap, JournalRow, LetterRow
from examples.demo.item import MessageKind
from examples.demo.ledger import MALFORMED, balance
from examples.demo.plan import make_plan

DONE = "done"


def message(id: str | None, offset: int, kind: str = "first", **more: object) -> ConfirmedMessage:
    known = ConfirmedMessage(kind, id, DONE, again=False, partition=0, offset=offset)
    return known._replace(**more)  # type: ignore[arg-type]


def row(id: str, offset: int, **more: object) -> JournalRow:
    return JournalRow(id, "done", "ok", 1, 0, 0, offset)._replace(**more)  # type: ignore[arg-type]


BOOK = Book(
    messages=[
        message("a", 0),
        message("a", 1, "duplicate"),
        message("a", 2, "conflict", expected="conflict"),
        message("b", 3),  # lost with the killed process
        message("b", 4, again=True),
        message("c", 5),  # in doubt, then done, as the check says that the next copy had asked
        message("c", 6, again=True),
        message("d", 7),  # failed, and ran again
        message("d", 8, again=True),
        message("e", 9, expected="rejected/no_stock"),
        message(None, 10, "malformed", expected=MALFORMED),
        message("f", 11, "malformed", expected=MALFORMED),
    ],
    rows=[
        row("a", 0, resends=1),
        row("b", 4),
        row("c", 5, resends=1),
        row("d", 8, run=2),
        row("e", 9, state="rejected", code="no_stock"),
    ],
    attempts=[FailedAttempt("c", 1), FailedAttempt("d", 1)],
    letters=[
        LetterRow(0, 2, "conflict", ""),
        LetterRow(0, 10, "malformed", "no id"),
        LetterRow(0, 11, "malformed", "no type"),
    ],
    effects={"a": 1, "b": 1, "c": 1, "d": 1},
    answers={"a": DONE, "b": DONE, "c": DONE, "d": DONE, "e": "rejected/no_stock", "f": MALFORMED},
    gaps=[Gap("killed", 1, {0: 4})],
)


def test_every_message_finds_its_place() -> None:
    ledger = balance(BOOK)

    assert ledger.unexplained == []
    assert ledger.balanced
    assert (ledger.sent, ledger.resent, ledger.requests) == (12, 3, 6)
    assert (ledger.done_once, ledger.answered, ledger.settled_later) == (4, 2, 1)
    assert (ledger.lost_in_killed, ledger.lost_at_commit) == (1, 0)
    assert ledger.rejected == {
        "no_stock": 1, "conflict": 1, "malformed: no id": 1, "malformed: no type": 1,
    }  # fmt: skip


def test_a_loss_at_commit_needs_a_drop_that_a_consumer_told_of() -> None:
    dropped = balance(replace(BOOK, gaps=[Gap("commit", 1)]))

    assert dropped.balanced
    assert (dropped.lost_in_killed, dropped.lost_at_commit) == (0, 1)
    assert not balance(replace(BOOK, gaps=[Gap("commit", 0)])).balanced


def test_an_answer_that_a_killed_worker_committed_may_be_counted_again() -> None:
    twice = replace(BOOK, rows=[BOOK.rows[0]._replace(resends=2), *BOOK.rows[1:]])

    assert balance(replace(twice, suspects=1)).balanced
    assert not balance(twice).balanced


def test_a_conflict_that_a_stopping_consumer_had_in_hand_is_answered_as_a_copy() -> None:
    answered = replace(
        BOOK,
        rows=[BOOK.rows[0]._replace(resends=2), *BOOK.rows[1:]],
        letters=BOOK.letters[1:],
        gaps=[Gap("stopped", 1), *BOOK.gaps],
    )

    assert balance(answered).balanced
    assert balance(answered).given_up == 1
    assert not balance(replace(answered, gaps=BOOK.gaps)).balanced
    thrice = [answered.rows[0]._replace(resends=3), *answered.rows[1:]]
    assert not balance(replace(answered, rows=thrice)).balanced


def test_a_copy_that_a_loss_explains_is_the_one_that_was_lost() -> None:
    # Of three copies of one id one was answered; only the oldest can have been lost.
    book = Book(
        messages=[message("a", offset) for offset in range(3)],
        rows=[row("a", 1, resends=1)],
        effects={"a": 1},
        answers={"a": DONE},
        gaps=[Gap("killed", 1, {0: 1}), Gap("commit", 0)],
    )

    assert balance(book).lost_in_killed == 1
    assert balance(book).balanced


BREAKS: dict[str, tuple[Callable[[Book], Book], str]] = {
    "an effect twice": (lambda b: replace(b, effects={**b.effects, "a": 2}), "a"),
    "a conflict that ran": (lambda b: replace(b, effects={**b.effects, "e": 1}), "and not done"),
    "no effect": (lambda b: replace(b, effects={"a": 1, "b": 1, "c": 1}), "no effect"),
    "no row": (lambda b: replace(b, rows=b.rows[1:]), "a: not there"),
    "a row of nobody": (lambda b: replace(b, rows=[*b.rows, row("x", 99)]), "never sent"),
    "another message's place": (
        lambda b: replace(b, rows=[row("a", 3, resends=1), *b.rows[1:]]), "place of no message",
    ),
    "still running": (
        lambda b: replace(b, rows=[*b.rows[:3], row("d", 8, state="running", run=2), b.rows[4]]),
        "d: running/ok",
    ),
    "no answer": (lambda b: replace(b, answers={}), "was told nothing"),
    "another answer": (
        lambda b: replace(b, answers={**b.answers, "e": DONE}), "e: its producer was told done",
    ),
    "a copy without a trace": (
        lambda b: replace(b, messages=[*b.messages, message("a", 50)]), "no known loss there",
    ),
    "a loss above what was committed": (
        lambda b: replace(b, gaps=[Gap("killed", 5, {0: 3})]), "offset 3",
    ),
    "more losses than were in hand": (
        lambda b: replace(b, gaps=[Gap("killed", 0, {0: 4})]), "no known loss there",
    ),
    "a dead letter of no message": (
        lambda b: replace(b, letters=[*b.letters, LetterRow(1, 1, "malformed", "")]), "dead letter",
    ),
    "a conflict that left nothing": (lambda b: replace(b, letters=b.letters[1:]), "no known loss"),
    "two messages at one place": (
        lambda b: replace(b, messages=[*b.messages, message("a", 0)]), "at one place",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BREAKS)
def test_books_that_are_wrong_do_not_balance(name: str) -> None:
    broken, told = BREAKS[name]

    ledger = balance(broken(BOOK))

    assert not ledger.balanced
    assert ledger.as_json()["balanced"] is False
    assert any(told in line for line in ledger.unexplained + ledger.run_twice)


@pytest.mark.parametrize("balanced, code", [(True, 0), (False, 1)])
def test_the_exit_code_says_whether_the_books_balance(
    balanced: bool, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = SimpleNamespace(play=lambda **_: (balanced, {"balanced": balanced}))
    monkeypatch.setitem(sys.modules, "examples.demo.main", part)

    assert CliRunner().invoke(cli.app, ["demo", "--json"]).exit_code == code


def test_the_plan_has_all_kinds_and_a_conflict_comes_after_its_request() -> None:
    plan = make_plan("run", 1000)

    kinds = [item.kind for item in plan]
    assert {kind: kinds.count(kind) for kind in MessageKind} == {
        MessageKind.FIRST: 1000, MessageKind.DUPLICATE: 80, MessageKind.CONFLICT: 20,
        MessageKind.MALFORMED: 20,
    }  # fmt: skip
    places = {item.id: n for n, item in enumerate(plan) if item.kind is MessageKind.FIRST}
    for n, item in enumerate(plan):
        if item.kind in (MessageKind.CONFLICT, MessageKind.DUPLICATE):
            assert places[item.id] < n
    assert plan == make_plan("run", 1000)
