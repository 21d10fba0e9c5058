"""No question of a page, and no list of the operators' API, is without an end in time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import httpx
import pytest

from consumer.admin.lag import UnfinishedOffsets
from consumer.config.settings import Settings
from consumer.gateway.operators import JournalOperator
from consumer.gateway.pages import journal_pages
from consumer.gateway.pages.journal_pages import DEEP_ODD, ODD, JournalPages, PageJournal
from consumer.gateway.schedules import JournalSchedules
from feedback.journal.queries import query
from feedback.operations.bounded import TookTooLong
from feedback.operations.follow_ups import FollowUps
from feedback.operations.inspection import OffsetsAsked
from tests.support.pages import request_row
from tests.support.visitors import made

SCHEMA = "oncepool"
PLACES = [OffsetsAsked("t", 0, 1, 9)]
CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("figures", (), {}),
    ("over_time", (60,), {}),
    ("search", ({"text": "x"},), {"deep": False}),
    ("search", ({"text": "x"},), {"deep": True}),
    ("search", ({"id": "r1"},), {"deep": False}),
    ("chosen", ({"state": "dead"},), {}),
    ("named", (["r1"],), {}),
    ("request", ("r1",), {}),
    ("request", ("r1", ["a.*"]), {}),
    ("dead", ({"search": "x"}, 10), {"deep": False}),
    ("dead", ({"search": "x"}, 10), {"deep": True}),
    ("chosen_dead", ({"search": "x"},), {}),
    ("look", ("conflicts", 10), {}),
    ("look", ("latest_changes", 10), {"types": ["a.*"]}),
    ("look_back", ("most_resent", 24, 10), {"types": ["a.*"], "seconds": ODD}),
    ("look_back", ("coalesced_groups", 24, 10), {"seconds": DEEP_ODD}),
    ("look_back", ("not_run_counts", 24), {"seconds": ODD}),
    ("look_back", ("requests_at_offsets", PLACES, 24, 10), {"seconds": ODD}),
]


class WatchedConnection:
    """Finds nearly nothing, and notes what is asked without a limit of its time."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.unbounded: list[str] = []
        self._limited = False
        self._rows: list[Any] = []

    @contextmanager
    def transaction(self) -> Iterator[None]:
        yield
        self._limited = False

    @contextmanager
    def cursor(self, **_: Any) -> Iterator[WatchedConnection]:
        yield self

    def execute(self, text: str, values: Any = None, **_: Any) -> WatchedConnection:
        if "statement_timeout" in text:
            self._limited = True
            return self
        self.asked.append(text)
        if not self._limited:
            self.unbounded.append(text)
        found = {
            query("open_questions", SCHEMA): {"dead": 0, "in_doubt": 0, "messages": 0},
            query("show_request", SCHEMA): request_row("r1"),
        }
        self._rows = [found[text]] if text in found else []
        return self

    def fetchall(self) -> list[Any]:
        return self._rows

    def fetchone(self) -> Any:
        return self._rows[0] if self._rows else None

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)


class AtOnce:
    """A database without threads."""

    def __init__(self, connection: WatchedConnection) -> None:
        self._connection = connection

    async def run(self, work: Callable[[Any], Any], timeout: float, *, again: bool = False) -> Any:
        del timeout, again
        return work(self._connection)


def watched(make: Callable[[Any], Any], name: str, *given: Any, **more: Any) -> WatchedConnection:
    connection = WatchedConnection()
    asyncio.run(getattr(make(AtOnce(connection)), name)(*given, **more))
    assert connection.asked
    return connection


def journal(threads: Any) -> JournalPages:
    return JournalPages(threads, threads, threads, SCHEMA)


@pytest.mark.parametrize("name,given,more", CALLS)
def test_each_question_of_a_page_has_an_end(
    name: str, given: tuple[Any, ...], more: dict[str, Any]
) -> None:
    assert watched(journal, name, *given, **more).unbounded == []


def test_a_request_is_shown_though_its_follow_ups_take_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def slow(*_: Any, **__: Any) -> Any:
        raise TookTooLong("too many rows")

    monkeypatch.setattr(journal_pages, "follow_ups_of", slow)
    pages = journal(AtOnce(WatchedConnection()))
    row = asyncio.run(pages.request("r1"))
    assert row is not None
    assert row["follow_ups"] == FollowUps(None, [], more=True)


def test_lists_beside_them_have_an_end() -> None:
    def operator(threads: Any) -> JournalOperator:
        return JournalOperator(Settings(), threads)

    def schedules(threads: Any) -> JournalSchedules:
        return JournalSchedules(threads, SCHEMA)

    assert watched(operator, "dead", {"search": "x"}, 10).unbounded == []
    assert watched(schedules, "look").unbounded == []


def test_all_questions_are_among_these_and_one_without_an_end_is_found() -> None:
    questions = inspect.getmembers(PageJournal, inspect.iscoroutinefunction)
    assert {name for name, _, _ in CALLS} == {name for name, _ in questions}

    class Careless(JournalPages):
        async def named(self, ids: Any) -> Any:
            return await self._run(lambda c: c.execute("SELECT count(*) FROM requests").fetchall())

    found = watched(lambda threads: Careless(threads, threads, threads, SCHEMA), "named", ["r1"])
    assert found.unbounded == ["SELECT count(*) FROM requests"]


def test_what_is_odd_says_how_far_back_it_was_looked() -> None:
    bench = made()
    bench.services.gaps = [UnfinishedOffsets("requests", 2, 40, 60, 1, "one")]
    place = {"topic": "requests", "partition": 2, "kafka_offset": 41}
    bench.pages_journal.odd["requests_at_offsets"] = [request_row("at 41", "done", **place)]

    async def scenario(http: httpx.AsyncClient) -> None:
        page = (await http.get("/ui/oddities")).text
        assert "only: there was no time for more" not in page
        assert "at 41" in page
        assert ("requests_at_offsets", [OffsetsAsked("requests", 2, 40, 60)], 24, 50, None) in (
            bench.pages_journal.asked
        )
        bench.pages_journal.back = (timedelta(minutes=10), False)
        bench.pages_journal.odd.clear()
        page = (await http.get("/ui/oddities")).text
        assert page.count("Of the last 10 min only") == 4
        assert "no row made or ended in the last 10 min" in page
        assert "/ui/oddities?deep=1" in page
        assert "/ui/oddities?deep=1" not in (await http.get("/ui/oddities?deep=1")).text
        bench.pages_journal.slow = True
        slow = (await http.get("/ui/oddities")).text
        assert (slow.count("could not answer this"), "not known" in slow) == (4, True)

    bench.run(scenario)


def test_dead_letters_are_looked_for_among_the_latest_first() -> None:
    bench = made()

    async def scenario(http: httpx.AsyncClient) -> None:
        assert "Among the latest" not in (await http.get("/ui/dead-letters")).text
        page = (await http.get("/ui/dead-letters?reason=timeout")).text
        assert "Among the latest 10,000 of each kind" in page
        assert "/ui/dead-letters?reason=timeout&amp;deep=1" in page
        bench.pages_journal.slow = True
        slow = (await http.get("/ui/dead-letters?reason=timeout")).text
        assert ("could not answer this" in slow, "deep=1" in slow) == (True, True)
        deep = (await http.get("/ui/dead-letters?reason=timeout&deep=1")).text
        for text in ("could not answer this", "Among the latest", "data-every"):
            assert text not in deep, text

    bench.run(scenario)
