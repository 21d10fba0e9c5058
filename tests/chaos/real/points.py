"""Named points between a worker's steps, at which it takes orders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from feedback.journal.writer import JournalWriter
from processing.worker.inbox import Inbox
from processing.worker.session import Session
from tests.chaos.real.harms import do
from tests.chaos.real.orders import Obedience


def arm(obedience: Obedience) -> None:
    """Makes this process take orders at the points between its steps, handlers apart."""

    def point(name: str, about: str = "") -> None:
        if (harm := obedience.take(name, about)) is not None:
            do(harm)

    find, commit, report = JournalWriter.find, Session.commit, Inbox.report

    def find_armed(self: JournalWriter, cursor: Any, ids: Sequence[str]) -> Any:
        point("before_lookup", " ".join(list(ids)[:3]))
        return find(self, cursor, ids)

    def commit_armed(self: Session, end: Callable[[], None] | None = None) -> None:
        point("before_commit")
        commit(self, end)
        point("after_commit")

    def report_armed(self: Inbox, chunk: Any, outcome: Any) -> None:
        point("before_report")
        report(self, chunk, outcome)

    JournalWriter.find = find_armed  # type: ignore[method-assign]
    Session.commit = commit_armed  # type: ignore[method-assign]
    Inbox.report = report_armed  # type: ignore[method-assign]
