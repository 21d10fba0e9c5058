"""`async def` handlers and hooks: what they may be, and that they share one event loop."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from processing import App, Done, Reject
from processing.handlers.awaiting import interrupt_waiting
from processing.handlers.errors import Interrupted, RegistrationError
from processing.handlers.event_loop import LOOP, EventLoop
from processing.testing import Kit
from tests.support.thread_starts import refusing

ASYNC = "it is async, and "


@pytest.mark.parametrize(
    "options, message",
    [
        ({}, ASYNC + 'its effects are in the journal\'s transaction.*effect="external"'),
        ({"effect": "transaction"}, ASYNC + "its effects are in the journal's transaction"),
        ({"effect": "external", "concurrency": 0}, "concurrency=0.*at least 1"),
        ({"effect": "external", "concurrency": 1001}, "concurrency=1001.*at most 1000"),
    ],
)
def test_what_an_async_handler_cannot_be_is_said_at_the_start(
    options: dict[str, Any], message: str
) -> None:
    async def pay(payload: Any) -> None: ...

    with pytest.raises(RegistrationError, match=message):
        App().handler("pay", **options)(pay)


def test_a_transaction_is_for_one_request_at_a_time() -> None:
    async def pay(payload: Any, tx: Any) -> None: ...

    with pytest.raises(RegistrationError, match=ASYNC + "it takes tx"):
        App().handler("pay", effect="external")(pay)


def test_other_handlers_have_no_concurrency() -> None:
    def pay(payload: Any) -> None: ...

    with pytest.raises(RegistrationError, match="concurrency= is for `async def` handlers"):
        App().handler("pay", effect="external", concurrency=5)(pay)


def test_batch_handlers_are_not_awaited() -> None:
    async def pay(requests: list[Any]) -> None: ...

    with pytest.raises(RegistrationError, match="it is async, and nothing awaits it here"):
        App().batch_handler("pay", effect="none")(pay)


def test_a_decorator_says_whether_it_is_awaited() -> None:
    async def pay(payload: int) -> int:
        return payload

    @functools.wraps(pay)
    def waiting(payload: int) -> int:
        return asyncio.run(pay(payload))

    @functools.wraps(pay)
    async def awaiting(payload: int) -> int:
        return await pay(payload)

    def plain(payload: int) -> int:
        return payload

    @functools.wraps(plain)
    async def around(payload: int) -> int:
        return plain(payload)

    app = App()
    with pytest.raises(RegistrationError, match=ASYNC + "the decorator around it is not"):
        app.handler("waiting", effect="external")(waiting)
    app.handler("awaiting", effect="external")(awaiting)
    app.handler("around", effect="external")(functools.partial(around))
    with Kit(app) as kit:
        assert kit.run("awaiting", 1).result == 1
        assert kit.run("around", 2).result == 2


def test_hooks_and_handlers_share_one_loop_and_a_hook_is_entered_and_left_by_one_task() -> None:
    app, seen = App(), []

    @app.on_worker_start
    async def session() -> AsyncIterator[dict[str, Any]]:
        async with asyncio.TaskGroup() as group:  # which another task could not leave
            seen.append(("open", asyncio.get_running_loop()))
            group.create_task(asyncio.sleep(0))
            yield {"session": asyncio.get_running_loop()}
        seen.append(("closed", asyncio.get_running_loop()))

    @app.on_worker_start
    async def more(session: Any) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"more": session}

    @app.on_worker_stop
    async def stopping() -> None:
        seen.append(("stop", asyncio.get_running_loop()))

    @app.handler("pay", effect="external")
    async def pay(payload: int, session: Any, more: Any) -> int:
        await asyncio.sleep(0)
        if payload < 0:
            raise Reject("negative")
        assert session is more is asyncio.get_running_loop()
        return payload + 1

    with Kit(app) as kit:
        assert kit.run("pay", 1).result == 2
        assert kit.run("pay", -1).code == "negative"
    assert [what for what, _ in seen] == ["open", "stop", "closed"]
    assert len({loop for _, loop in seen}) == 1


def test_a_hook_that_fails_after_its_yield_says_so_at_the_stop() -> None:
    app = App()

    @app.on_worker_start
    async def session() -> AsyncIterator[None]:
        yield
        raise ValueError("not closed")

    @app.handler("pay", effect="none")
    async def pay(payload: int) -> None: ...

    app.start_worker()
    with pytest.raises(ExceptionGroup, match="hooks failed") as failed:
        app.stop_worker()
    assert "not closed" in repr(failed.value.exceptions)


def test_what_ends_a_process_does_not_end_the_loop() -> None:
    app = App()

    @app.handler("pay", effect="none")
    async def pay(payload: int) -> int:
        if payload:
            raise SystemExit(payload)
        return 0

    with Kit(app) as kit:
        assert kit.run("pay", 1).code == "handler_error"
        assert kit.run("pay", 0).result == 0


def test_a_check_may_be_async() -> None:
    app = App()

    async def find(request: Any) -> Done:
        await asyncio.sleep(0)
        return Done({"paid": request.payload})

    @app.handler("pay", effect="external", check=find)
    async def pay(payload: int) -> dict[str, int]:
        return {"paid": payload}

    with Kit(app) as kit:
        assert kit.check("pay", 3) == Done({"paid": 3})


def test_what_is_waited_for_ends_at_its_deadline_or_when_it_is_told_to() -> None:
    app = App()

    async def hang(request: Any) -> Done:
        await asyncio.sleep(3600)
        return Done()

    @app.handler("pay", effect="external", check=hang)
    async def pay(payload: int) -> None:
        await asyncio.sleep(payload)

    with Kit(app) as kit:
        with pytest.raises(Interrupted) as late:
            kit.check("pay", 3, deadline=datetime.now(UTC) + timedelta(seconds=0.1))
        assert late.value.code == "timeout"
        alarm = threading.Timer(0.1, interrupt_waiting, ["shutdown"])
        alarm.start()
        with pytest.raises(Interrupted) as told:
            kit.run("pay", 3600)
        assert told.value.code == "shutdown"
        assert kit.run("pay", 0).state == "done"


def test_an_interruption_is_of_what_was_waited_for_then(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = LOOP.loop
    late: list[tuple[Any, ...]] = []

    async def interrupted_as_it_ends() -> int:
        monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *asked: late.append(asked))
        interrupt_waiting("shutdown")
        monkeypatch.undo()
        return 1

    async def next_one() -> int:
        for asked in late:
            loop.call_soon(*asked)
        for _ in range(3):
            await asyncio.sleep(0)
        return 2

    assert [LOOP.run(interrupted_as_it_ends()), len(late), LOOP.run(next_one())] == [1, 1, 2]


def test_an_interruption_counts_that_comes_before_the_loop_has_turned_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entered: list[bool] = []

    async def call() -> None:
        entered.append(True)

    ask = LOOP.loop.call_soon_threadsafe

    def interrupted_first(*asked: Any) -> None:
        monkeypatch.undo()
        interrupt_waiting("shutdown")
        ask(*asked)

    monkeypatch.setattr(LOOP.loop, "call_soon_threadsafe", interrupted_first)
    with pytest.raises(Interrupted) as told:
        LOOP.run(call())
    assert (told.value.code, entered) == ("shutdown", [])


def test_what_has_ended_counts_though_its_task_was_asked_once_more_to_end() -> None:
    """As a TaskGroup of Python 3.13 asks for it: the task counts as cancelled then."""

    async def ends() -> int:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return 1

    assert LOOP.run(ends()) == 1


def test_a_loop_that_no_thread_could_be_started_for_runs_once_one_can() -> None:
    loop = EventLoop()

    async def answer() -> int:
        return 42

    refused = answer()
    with refusing("event loop"), pytest.raises(RuntimeError, match="can't start"):
        loop.run(refused, timeout=10)
    refused.close()
    assert loop.run(answer(), timeout=10) == 42
    loop.loop.call_soon_threadsafe(loop.loop.close)
