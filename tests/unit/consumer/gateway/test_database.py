"""A database for tasks: whatever it does, nobody waits for longer than he says."""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from consumer.admin.journal import JournalBusy, JournalRefused, JournalUnreachable
from consumer.gateway.database import DatabaseThreads
from consumer.gateway.sources import ANSWERED_WITHIN, AT_ONCE, LONG, SharedSource, outbox_source
from feedback.contract.states import State
from tests.support.gateway import FakeJournal
from tests.support.loop_clock import stopped_clock
from tests.support.thread_starts import refusing


class Answer(str):
    """What a statement said, whose one row says that the server takes writes."""

    __slots__ = ()

    def fetchone(self) -> tuple[str]:
        return ("off",)


class FakeConnection:
    """One whose server may be cut off, or say nothing."""

    def __init__(self) -> None:
        self._near, self.far = socket.socketpair()
        self.closed = False
        self.info = self
        self.transaction_status = TransactionStatus.IDLE
        self.asked = 0
        self.silent = False

    def fileno(self) -> int:
        return self._near.fileno()

    def execute(self, text: str) -> Answer:
        self.asked += 1
        if self.silent:
            self.wait()
        if self.transaction_status is TransactionStatus.UNKNOWN:
            raise psycopg.OperationalError("the connection is lost")
        return Answer(text)

    def wait(self) -> None:
        """Until something comes, which nothing does."""
        self._near.recv(1)
        self.transaction_status = TransactionStatus.UNKNOWN
        raise psycopg.OperationalError("the connection is lost")

    def close(self) -> None:
        self.closed = True


class FakeServer:
    def __init__(self) -> None:
        self.made: list[FakeConnection] = []
        self.away = False
        self.silent = False
        self.tries = 0
        self.greets = threading.Event()
        self.greets.set()

    def connect(self, made: Callable[[Any], None]) -> Any:
        self.tries += 1
        self.greets.wait(25)
        if self.away:
            raise psycopg.OperationalError("connection refused: password=secret")
        connection = FakeConnection()
        self.made.append(connection)
        connection.silent = self.silent
        try:
            made(connection)
            connection.execute("SELECT set_config()")
        except BaseException:
            connection.close()
            raise
        return connection


def play(
    scenario: Callable[[FakeServer, DatabaseThreads], Any],
    threads: int = 1,
    clock: Callable[[], float] = time.monotonic,
) -> FakeServer:
    server = FakeServer()

    async def run() -> None:
        database = DatabaseThreads("database_url", server.connect, threads, clock)
        try:
            async with asyncio.timeout(30):
                await scenario(server, database)
        finally:
            database.close()

    asyncio.run(run())
    return server


def ask(connection: Any) -> Any:
    return connection.execute("SELECT 2")


def test_a_connection_is_kept() -> None:
    async def scenario(server: FakeServer, database: DatabaseThreads) -> None:
        for _ in range(3):
            assert await database.run(ask, 5, again=True) == "SELECT 2"

    assert len(play(scenario).made) == 1


def test_one_that_was_cut_is_made_anew() -> None:
    async def scenario(server: FakeServer, database: DatabaseThreads) -> None:
        for again in (True, False):
            await database.run(ask, 5, again=again)
            server.made[-1].transaction_status = TransactionStatus.UNKNOWN
            assert await database.run(ask, 5, again=again) == "SELECT 2"

    server = play(scenario)
    assert [one.closed for one in server.made][:-1] == [True, True]


def test_what_is_late_is_given_up_and_its_thread_serves_others() -> None:
    async def scenario(server: FakeServer, database: DatabaseThreads) -> None:
        with pytest.raises(JournalUnreachable, match=r"no answer within 0\.2 s"):
            await database.run(lambda c: c.wait(), 0.2)  # type: ignore[attr-defined]
        async with asyncio.timeout(20):
            while True:
                try:
                    assert await database.run(ask, 5, again=True) == "SELECT 2"
                    break
                except JournalUnreachable:
                    await asyncio.sleep(0.05)

    server = play(scenario)
    assert server.made[0].closed


async def late(database: DatabaseThreads, *, others: int = 0) -> str:
    """What a job is told that has no answer in time, once so many others had theirs meanwhile."""
    inside = threading.Event()

    def look(connection: Any) -> None:
        inside.set()
        connection.wait()

    later = stopped_clock()
    slow = asyncio.create_task(database.run(look, 3))
    await asyncio.to_thread(inside.wait)
    for _ in range(others):
        assert await database.run(ask, 5) == "SELECT 2"
    later(4)
    with pytest.raises(JournalUnreachable) as raised:
        await slow
    return str(raised.value)


def ticking() -> Callable[[], float]:
    """A clock on which next to no time passes."""
    return partial(next, itertools.count(0.0, 1e-6))


def test_what_is_late_while_others_are_answered_keeps_none_of_them_waiting() -> None:
    async def scenario(server: FakeServer, database: DatabaseThreads) -> None:
        for _ in range(3):
            assert "took longer than 3 s for this" in await late(database, others=1)
            assert await database.run(ask, 5) == "SELECT 2"

    play(scenario, threads=2, clock=ticking())


def test_that_others_were_answered_before_it_came_is_no_excuse() -> None:
    async def scenario(server: FakeServer, database: DatabaseThreads) -> None:
        assert await database.run(ask, 5) == "SELECT 2"
        assert "start PostgreSQL: no answer within 3 s" in await late(database)
        with pytest.raises(JournalUnreachable, match="start PostgreSQL: no answer within 3 s"):
            await database.run(ask, 5)

    play(scenario, threads=2, clock=ticking())


def test_a_server_without_room_for_one_more_connection_answers_on_those_it_has() -> None:
    inside, go = threading.Event(), threading.Event()

    def block(_: Any) -> None:
        inside.set()
        go.wait(25)

    async def scenario(server: FakeServer, database: DatabaseThreads) -> None:
        kept = asyncio.create_task(database.run(block, 25))
        await asyncio.to_thread(inside.wait)
        server.away = True
        server.greets.clear()
        refused = asyncio.create_task(database.run(ask, 25))
        while server.tries < 2:
            await asyncio.sleep(0.01)
        go.set()
        await kept
        server.greets.set()
        with pytest.raises(JournalUnreachable, match="connection refused"):
            await refused
        server.away = False
        assert await database.run(ask, 25) == "SELECT 2"

    play(scenario, threads=2, clock=ticking())


def test_a_thread_that_could_not_be_started_is_started_for_the_next() -> None:
    async def scenario(_server: FakeServer, database: DatabaseThreads) -> None:
        for _ in range(2):
            with refusing("database"), pytest.raises(JournalBusy, match="can't start new thread"):
                await database.run(ask, 5)
        assert await database.run(ask, 5) == "SELECT 2"

    play(scenario, threads=2)


@pytest.mark.parametrize("kept", [True, False], ids=["at a look", "at a start"])
def test_a_server_that_falls_silent_keeps_no_thread(kept: bool) -> None:
    """It acknowledges what is sent, as a frozen one does: nothing else ever cuts it off."""

    async def scenario(server: FakeServer, database: DatabaseThreads) -> None:
        if kept:
            assert await database.run(ask, 5) == "SELECT 2"
            server.made[-1].silent = True
        server.silent = True
        with pytest.raises(JournalUnreachable, match=r"no answer within 0\.2 s"):
            await database.run(ask, 0.2)
        silent, server.silent = len(server.made), False
        async with asyncio.timeout(20):
            while True:
                try:
                    assert await database.run(ask, 5) == "SELECT 2"
                    break
                except JournalUnreachable:
                    await asyncio.sleep(0.05)
        assert silent == 1  # nothing was opened for whom nobody waits any more
        assert len(server.made) == 2

    assert play(scenario).made[0].closed


def test_while_it_is_away_nobody_waits_for_it() -> None:
    async def scenario(server: FakeServer, database: DatabaseThreads) -> None:
        server.away = True
        with pytest.raises(JournalUnreachable, match="does not answer"):
            await database.run(ask, 5)
        tries = server.tries
        for _ in range(20):
            with pytest.raises(JournalUnreachable) as raised:
                await database.run(ask, 5)
            assert "secret" not in str(raised.value)
        assert server.tries <= tries + 1

    play(scenario)


def test_a_statement_that_is_refused_costs_no_connection() -> None:
    def refuse(_: Any) -> None:
        raise psycopg.errors.InsufficientPrivilege("permission denied")

    async def scenario(server: FakeServer, database: DatabaseThreads) -> None:
        with pytest.raises(JournalRefused):
            await database.run(refuse, 5)
        assert await database.run(ask, 5) == "SELECT 2"

    assert len(play(scenario).made) == 1


def test_there_are_no_more_threads_than_said() -> None:
    go, inside = threading.Event(), threading.Semaphore(0)

    def block(_: Any) -> None:
        inside.release()
        go.wait(20)

    async def scenario(server: FakeServer, database: DatabaseThreads) -> None:
        calls = [asyncio.create_task(database.run(block, 20)) for _ in range(5)]
        while len(server.made) < 2:
            await asyncio.sleep(0.01)
        go.set()
        await asyncio.gather(*calls)

    assert len(play(scenario, threads=2).made) == 2


def test_after_the_end_nothing_is_taken() -> None:
    async def scenario(server: FakeServer, database: DatabaseThreads) -> None:
        database.close()
        with pytest.raises(JournalUnreachable, match="stopping"):
            await database.run(ask, 5)

    play(scenario)


def test_what_is_asked_meanwhile_is_one_statement() -> None:
    asked: list[list[str]] = []
    known = FakeJournal().put("a", State.DONE)
    inside, go = threading.Event(), threading.Event()

    def look_up(_: Any, ids: Any) -> Any:
        asked.append(sorted(ids))
        if len(asked) == 1:
            inside.set()
            go.wait(20)
        return {"a": known}

    async def scenario(_: FakeServer, database: DatabaseThreads) -> None:
        stopped_clock()
        source = SharedSource(database, look_up)
        first = asyncio.create_task(source.read(["a"]))
        await asyncio.to_thread(inside.wait)
        others = [asyncio.create_task(source.read(["a", f"b{n}"])) for n in range(3)]
        await asyncio.sleep(0)
        others[0].cancel()
        go.set()
        assert await first == [known]
        assert await others[1] == await others[2] == [known, None]

    play(scenario)
    assert asked == [["a"], ["a", "b1", "b2"]]  # nobody waits for b0 any more


def test_each_statement_answers_those_it_was_about() -> None:
    """Many ids are several statements: who asked for the first waits for none of the others."""
    go, inside = threading.Event(), threading.Event()
    sizes: list[int] = []

    def look_up(_: Any, ids: Any) -> Any:
        sizes.append(len(ids))
        if "last" in ids:
            inside.set()
            go.wait(25)
        return {}

    async def scenario(server: FakeServer, database: DatabaseThreads) -> None:
        source = SharedSource(database, look_up)
        first = asyncio.create_task(source.read([f"a{n}" for n in range(AT_ONCE)]))
        last = asyncio.create_task(source.read([*(f"b{n}" for n in range(9)), "last"]))
        try:
            async with asyncio.timeout(20):
                assert await first == [None] * AT_ONCE
            assert not last.done()
        finally:
            go.set()
        assert await last == [None] * 10

    play(scenario, threads=2)
    assert sizes == [AT_ONCE, 10]


async def _turns() -> None:
    """What is due is done."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_nobody_waits_for_ever_for_what_others_have_asked() -> None:
    """And of what nobody waits for any more the database is not asked."""
    asked: list[list[str]] = []

    class Slow:
        """Its statements take their time."""

        def __init__(self) -> None:
            self.go = asyncio.Event()

        async def run(self, work: Any, timeout: float, *, again: bool) -> Any:
            work(None)
            await self.go.wait()
            return {}

    def look_up(_: Any, ids: Any) -> Any:
        asked.append(list(ids))

    async def scenario() -> None:
        later, threads = stopped_clock(), Slow()
        source = SharedSource(threads, look_up)  # type: ignore[arg-type]
        parts = [[f"{part}-{n}" for n in range(AT_ONCE)] for part in range(3)]
        many = [asyncio.create_task(source.read(part)) for part in parts]
        await _turns()
        later(LONG)
        await _turns()
        assert asked == parts[:2]
        later(ANSWERED_WITHIN)
        await _turns()
        assert all(one.done() for one in many)
        for one in many:
            with pytest.raises(JournalBusy, match=f"came to 0 of {AT_ONCE} within 9 s"):
                await one
        threads.go.set()
        assert await source.read(["x"]) == [None]
        assert asked == [*parts[:2], ["x"]]

    asyncio.run(scenario())


def test_an_error_is_told_to_all_who_asked() -> None:
    async def scenario(server: FakeServer, database: DatabaseThreads) -> None:
        server.away = True
        source = SharedSource(database, lambda _c, _ids: {})
        results = await asyncio.gather(
            *(source.read([str(n)]) for n in range(3)), return_exceptions=True
        )
        assert [type(one) for one in results] == [JournalUnreachable] * 3

    play(scenario)


def test_who_waits_long_holds_up_nobody_while_threads_are_left() -> None:
    go = threading.Event()

    async def scenario(server: FakeServer, database: DatabaseThreads) -> None:
        await database.run(ask, 5)  # its thread is idle, and takes one of the next two
        waits = asyncio.create_task(database.run(lambda _: go.wait(25), 25))
        try:
            async with asyncio.timeout(20):
                await asyncio.gather(*(database.run(ask, 20) for _ in range(3)))
        finally:
            go.set()
            await waits

    assert len(play(scenario, threads=2).made) == 2


def test_to_wait_for_others_says_nothing_of_the_database() -> None:
    go, inside = threading.Event(), threading.Event()

    def block(_: Any) -> None:
        inside.set()
        go.wait(25)

    async def scenario(server: FakeServer, database: DatabaseThreads) -> None:
        first = asyncio.create_task(database.run(block, 25))
        while not inside.is_set():
            await asyncio.sleep(0.01)
        done: list[Any] = []
        with pytest.raises(JournalBusy, match="nothing was asked or changed"):
            await database.run(done.append, 0.05)
        go.set()
        await first
        assert await database.run(ask, 20) == "SELECT 2"
        assert done == []

    play(scenario)


def test_a_look_of_somebody_who_left_ends_and_is_not_begun_again() -> None:
    inside: list[Any] = []

    def look(connection: Any) -> None:
        inside.append(connection)
        connection.wait()

    async def scenario(server: FakeServer, database: DatabaseThreads) -> None:
        await database.run(ask, 20, again=True)
        left = asyncio.create_task(database.run(look, 25, again=True))
        while not inside:
            await asyncio.sleep(0.01)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        assert await database.run(ask, 20) == "SELECT 2"
        assert len(inside) == 1

    play(scenario)


def test_an_outbox_knows_the_payload_of_what_has_ended_too() -> None:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    row = ("a", "t", "done", "ok", {"n": 1}, None, at, "aa", True, True)

    class Rows(FakeConnection):
        def execute(self, *_: Any) -> Any:
            return [row]

    async def scenario(server: FakeServer, database: DatabaseThreads) -> None:
        rows: Any = Rows
        threads = DatabaseThreads("outbox_database_url", lambda _: rows(), 1)
        [known] = await outbox_source(threads, "s").read(["a"])
        threads.close()
        assert known is not None
        assert (known.state, known.result, known.fingerprint) == (State.DONE, {"n": 1}, "aa")

    play(scenario)
