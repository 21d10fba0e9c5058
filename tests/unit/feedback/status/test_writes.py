from __future__ import annotations

import ast
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import feedback
from feedback.contract.states import State
from feedback.journal.coalescing import Waiter
from feedback.journal.rows import RequestRow, StoredRequest
from feedback.status.status import DEFAULT_TTL, Status, StatusFields, StatusWrite

AT = datetime(2030, 5, 1, 12, tzinfo=UTC)
ROOT = Path(feedback.__file__).parent.parent


def row(state: State, **others: Any) -> RequestRow:
    return RequestRow(
        "a", "t", state, "code", 2, 3, 0, b"\x01", b'{"n":1}', "error", "reason", None, None, None,
        None, "topic", 0, 7, AT, "transaction", None, **others,
    )  # fmt: skip


def stored(**others: Any) -> StoredRequest:
    fields: dict[str, Any] = {
        **dict.fromkeys(StoredRequest._fields), "id": "a", "type": "t", "state": "failed",
        "code": "code", "attempt": 2, "run": 3, "fingerprint": b"\x01", "own_fingerprint": False,
    }  # fmt: skip
    return StoredRequest(**(fields | others))


def test_a_rows_status_says_what_the_row_says() -> None:
    fields = row(State.DONE, superseded_by="b").status(AT)
    write = StatusWrite.of(fields, reply_to="me", ttl=5)
    assert (write.id, write.ttl, write.bump, write.reply_to) == ("a", 5, False, "me")
    assert Status.decode(write.value) == Status(
        "a", "t", State.DONE, "code", 2, 3, AT, "01", {"n": 1}, "error", "reason", None, "b"
    )


def test_what_has_no_row_says_so() -> None:
    write = StatusWrite.of(row(State.FAILED).status(AT), bump=True)
    assert (write.bump, Status.decode(write.value).journaled) == (True, False)
    assert b"journaled" not in StatusWrite.of(row(State.FAILED).status(AT)).value


def test_no_fingerprint_is_told_that_producers_cannot_make() -> None:
    fields = row(State.DONE, own_fingerprint=True).status(AT)
    assert Status.decode(fields.encode()).fingerprint is None
    assert Status.decode(stored().told(AT, 5).value).fingerprint == "01"
    assert Status.decode(stored(own_fingerprint=True).told(AT, 5).value).fingerprint is None
    assert stored().status(AT, tell_fingerprint=False).fingerprint is None


def test_what_waits_lives_until_it_is_due_and_its_time_after_that() -> None:
    due = AT + timedelta(seconds=90)
    write = StatusWrite.of(row(State.WAITING, not_before=due).status(AT), ttl=5)
    assert (Status.decode(write.value).retry_at, write.ttl) == (due, 95)
    past = row(State.WAITING, not_before=AT - timedelta(days=1)).status(AT)
    assert StatusWrite.of(past).ttl == DEFAULT_TTL


def test_what_does_not_wait_is_not_run_again_at_any_time() -> None:
    cancelled = row(State.CANCELLED, not_before=AT + timedelta(days=1))
    assert cancelled.status(AT).retry_at is None


def test_a_row_that_gave_way_names_the_one_that_took_its_place() -> None:
    waiter = Waiter("old", "t", "key", AT, AT, AT, 2, 1, b"\x01", False, 60)
    status = waiter.replaced_by("new").status(AT)
    assert (status.state, status.superseded_by, status.fingerprint) == (
        "superseded",
        "new",
        b"\x01",
    )
    own = waiter._replace(own_fingerprint=True)
    assert own.replaced_by("new").status(AT).fingerprint is None


def test_a_status_without_a_row() -> None:
    write = StatusWrite.of(StatusFields("a", "t", State.ACCEPTED, 0, code="ok", attempt=0, at=AT))
    assert (Status.decode(write.value).v, write.ttl) == ("000001", DEFAULT_TTL)


def test_every_write_is_made_of_what_a_status_says() -> None:
    places = {
        path.relative_to(ROOT).as_posix()
        for package in ("consumer", "processing", "feedback")
        for path in (ROOT / package).rglob("*.py")
        for name in _called(path)
        if name == "StatusWrite"
    }
    assert places == set()


def _called(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id
