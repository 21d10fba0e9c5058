"""Dead letters that are followed into a file, on a real PostgreSQL that goes away meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from io import BytesIO
from typing import Any

import orjson
import psycopg
import pytest

from consumer.commands import dead_letter_files as commands
from consumer.commands.dead_letter_files import OVERLAP, Follower
from consumer.commands.dead_letter_options import filters
from feedback.operations import dead_letter_files
from feedback.postgres import Connection, open_connection
from tests.support.journal import Journal


class LastFile(BytesIO):
    """The session ends as soon as something has been written."""

    def __init__(self, journal: Journal, connection: Connection) -> None:
        super().__init__()
        self._journal, self._pid = journal, connection.info.backend_pid

    def write(self, line: Any) -> int:
        self._journal.run("SELECT pg_terminate_backend(%s, 20000)", self._pid)
        return super().write(line)

    def writelines(self, lines: Iterable[Any]) -> None:
        for line in lines:
            self.write(line)


def test_what_was_written_before_an_outage_is_not_written_again(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_files, "AT_ONCE", 1)
    for name in ("a", "b", "c"):
        journal.put(name)
    chosen = filters(None, None, None, None, None)
    with open_connection(journal.url, "test") as cut, open_connection(journal.url, "test") as next_:
        out = LastFile(journal, cut)
        follower = Follower(out, set(), chosen, journal.schema)

        with pytest.raises(psycopg.OperationalError):
            follower.look(cut)
        follower.look(next_)

    ids = [orjson.loads(line)["id"] for line in out.getvalue().splitlines()]
    assert ids == ["a", "b", "c"]


class Ahead(datetime):
    """The clock of a machine that is ahead of the database's."""

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return datetime.now(tz) + 2 * OVERLAP + timedelta(minutes=1)


def test_what_comes_is_found_though_this_clock_is_ahead(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "datetime", Ahead)
    out = BytesIO()
    follower = Follower(out, set(), filters(None, None, None, None, None), journal.schema)
    for name in ("a", "b", "c"):
        journal.put(name)
        follower.look(journal.connection)
    ids = [orjson.loads(line)["id"] for line in out.getvalue().splitlines()]
    assert ids == ["a", "b", "c"]
