"""What is told of transactions whose COMMIT may have got no answer, on real PostgreSQL."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from feedback.journal.commits import Commits, Fate, fate_of
from stack import Stack
from tests.support.proxy import Proxy, says_commit
from tests.support.waiting_rows import WaitingRows


class Heard:
    """What is told, in lists."""

    def __init__(self) -> None:
        self.landed: list[str] = []
        self.lost: list[str] = []
        self.commits: Commits[str] = Commits(self.landed.extend, self.lost.extend)

    def write(self, connection: psycopg.Connection[Any], schema: str, fact: str) -> None:
        with self.commits.transaction(connection) as facts:
            connection.execute(f"UPDATE {schema}.requests SET reason = 'seen'".encode())
            facts.append(fact)

    @property
    def all(self) -> tuple[list[str], list[str]]:
        return self.landed, self.lost


def test_what_landed_is_told_once_also_where_the_answer_was_lost(
    stack: Stack, rows: WaitingRows, proxy: Proxy, through: str
) -> None:
    heard = Heard()
    rows.add("x")
    heard.write(rows.connection, rows.schema, "answered")
    assert heard.all == (["answered"], [])

    proxy.wish(says_commit)
    with psycopg.connect(through, autocommit=True) as line, pytest.raises(psycopg.Error):
        heard.write(line, rows.schema, "unanswered")
    assert (heard.all, heard.commits.unclear) == ((["answered"], []), True)
    heard.commits.settle(rows.connection)
    heard.commits.settle(rows.connection)
    assert (heard.all, heard.commits.unclear) == ((["answered", "unanswered"], []), False)

    proxy.lose_answer(b"pg_current_xact_id")
    with psycopg.connect(through, autocommit=True) as line, pytest.raises(psycopg.Error):
        heard.write(line, rows.schema, "cut before")
    with pytest.raises(psycopg.errors.UndefinedTable):
        heard.write(rows.connection, "nowhere", "refused")
    assert (heard.lost, heard.commits.unclear) == (["cut before"], False)


def test_one_that_still_runs_is_left_for_the_next_time(
    rows: WaitingRows, other: psycopg.Connection[tuple[object, ...]]
) -> None:
    numbers: list[str] = []
    for end in ("COMMIT", "ROLLBACK"):
        other.execute("BEGIN")
        [(number,)] = other.execute("SELECT pg_current_xact_id()::text").fetchall()
        assert fate_of(rows.connection, str(number)) is Fate.RUNS
        other.execute(end)
        numbers.append(str(number))
    ends = [fate_of(rows.connection, number) for number in numbers]
    assert ends == [Fate.COMMITTED, Fate.UNDONE]
    ahead = int(numbers[-1]) + 10**9
    assert fate_of(rows.connection, ahead) is Fate.UNDONE, "a server that took over knows of none"
