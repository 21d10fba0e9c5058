"""Claims as tests make them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

import psycopg

from feedback.journal.claimed_rows import UnreadableRow
from feedback.journal.claims import ClaimRequest, ClaimResult, claim
from feedback.journal.coalescing import Superseded
from feedback.journal.commits import Commits
from feedback.journal.type_turns import TypeTurns
from tests.support.waiting_rows import WaitingRows


class ComesBefore(Protocol):
    """Has a row of reference `k` committed by somebody else, right before a statement."""

    def __call__(self, statement: str, name: str, **more: Any) -> None: ...


def waits_for_a_lock(
    rows: WaitingRows, other: psycopg.Connection[tuple[object, ...]]
) -> list[tuple[object, ...]]:
    statement = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
    return rows.query(statement, other.info.backend_pid)


def take(
    rows: WaitingRows,
    most: int = 100,
    order: int = 1,
    who: str = "a",
    after: str = "",
    known: Collection[str] = (),
    ended: list[Superseded | UnreadableRow] | None = None,
    turns: TypeTurns | None = None,
    **more: object,
) -> ClaimResult:
    """`ended` gets what ended without a run."""
    want = ClaimRequest(order, most, **more)  # type: ignore[arg-type]
    commits = None if ended is None else Commits(ended.extend)
    return claim(
        rows.connection, who, want, schema=rows.schema, after=after, known=known, commits=commits,
        turns=turns,
    )  # fmt: skip


def ids(haul: ClaimResult) -> list[str]:
    return [(claimed.record[6] or [])[0][1].decode() for claimed in haul.rows]  # type: ignore[union-attr]


def reference(rows: WaitingRows, *names: str, key: str = "k", **more: Any) -> None:
    rows.add(*names, coalesce_key=key, code="coalescing", **more)
