"""The demo's books of the waiting queue: what they account for, and what must not pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from examples.demo.book import (
    COALESCED,
    Book,
    ConfirmedMessage,
    FailedAttempt,
    Gap,
    JournalRow,
    QueuePlan,
)
from examples.demo.item import Way
from examples.demo.ledger import balance
from examples.demo.plan import PARCEL_ATTEMPTS, make_plan

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SUPERSEDED = "superseded/superseded"


def message(id: str, offset: int, expected: str = "done") -> ConfirmedMessage:
    return ConfirmedMessage("first", id, expected, again=False, partition=0, offset=offset)


def row(id: str, offset: int, **more: object) -> JournalRow:
    made = JournalRow(id, "done", "ok", 1, 0, 0, offset, finished_at=NOON + timedelta(seconds=5))
    return made._replace(**more)  # type: ignore[arg-type]


def superseded(id: str, offset: int, by: str) -> JournalRow:
    return row(id, offset, state="superseded", code="superseded", superseded_by=by)


BOOK = Book(
    messages=[
        message("delayed", 0),
        message("order", 1),
        message("parcel", 2),
        message("dead", 3),
        message("count-1", 4, COALESCED),
        message("count-2", 5, COALESCED),
        message("count-3", 6, COALESCED),
    ],
    rows=[
        row("delayed", 0),
        row("order", 1, follower="reminder", began_at=NOON),
        row("reminder", -1, partition=-1),
        row("parcel", 2, run=2, attempt=2),
        row("dead", 3, run=3),
        superseded("count-1", 4, "count-2"),
        superseded("count-2", 5, "count-3"),
        row("count-3", 6),
    ],
    attempts=[FailedAttempt("parcel", 1), FailedAttempt("dead", 1), FailedAttempt("dead", 2)],
    effects=dict.fromkeys(("delayed", "order", "reminder", "parcel", "dead", "count-3"), 1),
    answers={
        **dict.fromkeys(("delayed", "order", "parcel", "dead", "count-3"), "done"),
        **dict.fromkeys(("count-1", "count-2"), SUPERSEDED),
    },
    waits={
        "delayed": QueuePlan(Way.DELAYED, NOON + timedelta(seconds=4)),
        "order": QueuePlan(Way.DIRECT, follows=3.0),
        "parcel": QueuePlan(Way.RETRIED, attempt=2),
        "dead": QueuePlan(Way.DEAD, attempt=2),
        **dict.fromkeys(("count-1", "count-2", "count-3"), QueuePlan(Way.COALESCED)),
    },
    revived={"dead"},
    parked=4,
)


def test_what_waited_finds_its_place() -> None:
    ledger = balance(BOOK)

    assert ledger.unexplained == []
    assert ledger.balanced
    assert (ledger.done_once, ledger.superseded, ledger.settled_later) == (5, 2, 0)
    queue = ledger.queue
    assert (queue.delayed, queue.followed, queue.revived, queue.parked) == (1, 1, 1, 4)
    assert (queue.counted, queue.superseded, queue.retried) == (1, 2, {2: 1})
    assert queue.lateness == 1.5


def test_a_consumer_that_stops_may_give_up_copies_and_nothing_else() -> None:
    gaps = [Gap("stopped", 1)]
    copy = replace(BOOK, messages=[*BOOK.messages, message("delayed", 9)])

    assert not balance(copy).balanced
    ledger = balance(replace(copy, gaps=gaps))
    assert ledger.balanced
    assert ledger.given_up == 1
    # As if the first message had been lost, and the second one had run.
    rows = [r._replace(offset=9) if r.id == "delayed" else r for r in BOOK.rows]
    assert not balance(replace(copy, rows=rows, gaps=gaps)).balanced


def with_row(id: str, **more: object) -> Callable[[Book], Book]:
    rows = [r._replace(**more) if r.id == id else r for r in BOOK.rows]  # type: ignore[arg-type]
    return lambda book: replace(book, rows=rows)


BREAKS: dict[str, tuple[Callable[[Book], Book], str]] = {
    "before its time": (
        with_row("delayed", finished_at=NOON), "delayed: ended 2026-01-01 12:00:00",
    ),
    "asked for, and before its time": (
        with_row("reminder", finished_at=NOON + timedelta(seconds=2)), "reminder: ended",
    ),
    "asked for, and still waiting": (with_row("reminder", state="waiting"), "it should be done"),
    "asked for by nobody": (with_row("order", follower=None), "nobody asked for it"),
    "asked for, and not there": (
        lambda b: replace(b, rows=[r for r in b.rows if r.id != "reminder"]),
        "what it asked for is not there",
    ),
    "asked for, and run twice": (
        lambda b: replace(b, effects={**b.effects, "reminder": 2}), "reminder",
    ),
    "done at another attempt": (with_row("parcel", attempt=3), "it should be attempt 2"),
    "a failed run that left no line": (
        lambda b: replace(b, attempts=b.attempts[1:]), "after 0 failed runs",
    ),
    "still dead": (with_row("dead", state="dead", code="handler_error"), "dead/handler_error"),
    "done and never dead": (lambda b: replace(b, revived=()), "retried by an operator"),
    "superseded by nobody": (with_row("count-2", superseded_by=None), "took its place"),
    "superseded in a circle": (with_row("count-2", superseded_by="count-1"), "took its place"),
    "superseded, with an effect": (
        lambda b: replace(b, effects={**b.effects, "count-1": 1}), "an effect, and not done",
    ),
    "told another end": (
        lambda b: replace(b, answers={**b.answers, "count-1": "done"}), "was told done",
    ),
    "a lost copy of one that was retried": (
        lambda b: replace(b, messages=[*b.messages, message("parcel", 9)]), "no known loss there",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BREAKS)
def test_books_that_are_wrong_do_not_balance(name: str) -> None:
    broken, told = BREAKS[name]

    ledger = balance(broken(BOOK))

    assert not ledger.balanced
    assert any(told in line for line in ledger.unexplained + ledger.run_twice)


def test_the_plan_has_requests_of_every_way_behind_the_direct_ones() -> None:
    plan = make_plan("run", 2000, direct=0.5)

    assert {item.way for item in plan} == set(Way)
    first = next(n for n, item in enumerate(plan) if item.queued)
    assert first >= 1000
    assert any(item.follows for item in plan)
    for item in plan:
        assert (item.delay is not None) == (item.way is Way.DELAYED)
        assert item.way is not Way.RETRIED or item.attempt in (2, 3)
        assert item.way is not Way.DEAD or item.attempt == PARCEL_ATTEMPTS
    assert not any(item.queued for item in make_plan("run", 500, direct=1.0))
