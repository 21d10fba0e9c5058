"""Hooks of a worker: what they provide, their order, and what happens when they raise."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from processing import App, RegistrationError


class Http:
    closed = False


@pytest.fixture
def app() -> App:
    app = App()

    @app.handler("t")
    def handler(payload: Any) -> None: ...

    return app


def test_objects_mappings_and_generators(app: App) -> None:
    events: list[str] = []

    @app.on_worker_start
    def http() -> Http:
        events.append("http")
        return Http()

    @app.on_worker_start
    def settings(http: Http) -> dict[str, Any]:
        return {"region": "eu", "same": http}

    @app.on_worker_start
    def connection(client: Http) -> Iterator[list[str]]:
        events.append("open")
        yield ["connection"]
        events.append("close")

    @app.on_worker_start
    def nothing() -> None: ...

    @app.on_worker_stop
    def stopped(connection: list[str]) -> None:
        events.append(f"stop with {connection[0]}")

    @app.handler("u")
    def handler(payload: Any, region: str, connection: list[str], client: Http, same: Any) -> Any:
        return [region, connection, client is same]

    app.start_worker()
    assert events == ["http", "open"]
    assert app.handlers["u"].call({}, None, None) == b'["eu",["connection"],true]'
    app.stop_worker()
    assert events[2:] == ["stop with connection", "close"]
    app.stop_worker()
    assert len(events) == 4


def test_handlers_get_what_hooks_provide(app: App) -> None:
    @app.on_worker_start
    def http() -> Http:
        return Http()

    @app.handler("u")
    def handler(payload: Any, client: Http, *, http: Any) -> bool:
        return client is http

    app.start_worker()
    assert app.handlers["u"].call({}, None, None) == b"true"


def test_given_resources_stand_in_for_the_start_hooks(app: App) -> None:
    @app.on_worker_start
    def http() -> Http:
        raise AssertionError

    @app.handler("u")
    def handler(payload: Any, http: Http) -> bool:
        return http.closed

    app.start_worker({"http": Http()})
    assert app.handlers["u"].call({}, None, None) == b"false"


def test_a_hook_that_raises_is_named_and_what_was_opened_is_closed(app: App) -> None:
    events: list[str] = []

    @app.on_worker_start
    def first() -> Iterator[int]:
        yield 1
        events.append("closed")

    @app.on_worker_start
    def second() -> None:
        raise OSError("no route")

    with pytest.raises(OSError, match="no route") as caught:
        app.start_worker()
    assert any("on_worker_start, second (" in note for note in caught.value.__notes__)
    assert events == ["closed"]


def test_all_stop_hooks_run_and_their_errors_come_together(app: App) -> None:
    events: list[str] = []

    @app.on_worker_start
    def opened() -> Iterator[int]:
        yield 1
        events.append("closed")
        raise ValueError("at close")

    @app.on_worker_stop
    def first() -> None:
        raise OSError("first")

    @app.on_worker_stop
    def second() -> None:
        events.append("second")

    app.start_worker()
    with pytest.raises(ExceptionGroup) as caught:
        app.stop_worker()
    assert [str(error) for error in caught.value.exceptions] == ["first", "at close"]
    assert events == ["second", "closed"]


def test_a_stop_hook_that_exits_keeps_none_of_the_others_from_running(app: App) -> None:
    events: list[str] = []

    @app.on_worker_start
    def opened() -> Iterator[int]:
        yield 1
        events.append("closed")

    @app.on_worker_stop
    def leave() -> None:
        sys.exit("I leave")

    app.start_worker()
    with pytest.raises(BaseExceptionGroup) as caught:
        app.stop_worker()
    assert [str(error) for error in caught.value.exceptions] == ["I leave"]
    assert events == ["closed"]


def test_terminate_runs_all_and_never_raises(app: App, caplog: pytest.LogCaptureFixture) -> None:
    events: list[Any] = []

    @app.on_worker_start
    def http() -> Http:
        return Http()

    @app.on_terminate
    def first() -> None:
        raise OSError("first")

    @app.on_terminate
    def leave() -> None:
        sys.exit("I leave")

    @app.on_terminate
    def second(http: Http) -> None:
        events.append(http)

    app.terminate()
    assert not events  # nothing has started, so nothing is to be told
    app.start_worker()
    with caplog.at_level(logging.ERROR):
        app.terminate()
    assert isinstance(events[0], Http)
    assert caplog.text.count("on_terminate failed") == 2


@pytest.mark.parametrize(
    "provided, message",
    [
        ({"tx": 1}, "provides 'tx', a name that handlers already have"),
        ({"not a name": 1}, "provides 'not a name', which no parameter can be named after"),
        ({3: 1}, "provides 3"),
        ({"given": 1}, "provides 'given', and an earlier hook does too"),
    ],
)
def test_refused_resources(app: App, provided: Any, message: str) -> None:
    @app.on_worker_start
    def given() -> int:
        return 5

    @app.on_worker_start
    def hook() -> Any:
        return provided

    with pytest.raises(RegistrationError, match=message):
        app.start_worker()


@pytest.mark.parametrize("when", ["on_worker_start", "on_worker_stop", "on_terminate"])
def test_unknown_parameters_of_hooks_are_told_at_the_start(app: App, when: str) -> None:
    def hook(settings: Any) -> None: ...

    getattr(app, when)(hook)
    with pytest.raises(RegistrationError, match=f"{when}, hook .*'settings' is unknown"):
        app.start_worker()


def test_a_hook_that_runs_in_a_signal_handler_cannot_be_async(app: App) -> None:
    async def hook() -> None: ...

    with pytest.raises(RegistrationError, match=r"on_terminate, hook .*it is async"):
        app.on_terminate(hook)


@pytest.mark.parametrize("hook", ["on_worker_start", "on_worker_stop", "on_terminate", "on_error"])
def test_a_hook_with_brackets_is_refused_in_words(hook: str) -> None:
    with pytest.raises(RegistrationError, match=f"write @app.{hook} above the function, without"):
        getattr(App(), hook)()  # as `@app.on_worker_start()` above a function does
