"""The looks that guard `tx` can be taken by themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.guarding import (
    BEHIND,
    CHECK,
    CHECK_NEW,
    KIND,
    MADE,
    PLAIN,
    REUSED,
    UNTOUCHED,
    looks_of,
    session_of,
)
from processing.worker.guarded_cursor import GuardedCursor
from processing.worker.session import Session


@pytest.fixture
def session() -> Iterator[Session]:
    with session_of(None) as made:
        yield made


def test_each_look_does_what_it_is_called(session: Session) -> None:
    looks = looks_of(session)
    assert set(looks) == {CHECK, CHECK_NEW, BEHIND, REUSED, MADE, PLAIN}
    statement = looks[CHECK]()
    assert looks[CHECK]() is statement
    assert looks[CHECK_NEW]() != looks[CHECK_NEW]()
    assert looks[BEHIND]() is None
    cursor = looks[REUSED]()
    assert cursor is looks[REUSED]() is session.handler_cursor(KIND)
    assert isinstance(looks[MADE](), GuardedCursor)
    assert looks[MADE]() is not cursor
    assert not isinstance(looks[PLAIN](), GuardedCursor)


def test_where_no_transaction_is_open_nobody_asks_whether_it_was_left_alone(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert UNTOUCHED not in looks_of(session)
    monkeypatch.setattr(Session, "untouched", True)
    assert looks_of(session)[UNTOUCHED]() is True
