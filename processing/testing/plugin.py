"""Fixtures for tests of users' projects. pytest loads it by itself where this package is installed.

    [tool.pytest.ini_options]
    oncepool_app = "shop.app:app"

    def test_a_payment_is_made(oncepool_sandbox) -> None:
        assert oncepool_sandbox.client.call("payment.create", {"amount": 5}).state == "done"

Nothing is imported before a fixture is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from processing import App
    from processing.testing import Sandbox

_OPTION = "oncepool_app"
_RAISED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The setting that names the app."""
    parser.addini(_OPTION, "module:attribute of the App that oncepool's fixtures run")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    """Notes whether the test has failed, or was skipped, by the time its fixtures end."""
    outcome = yield
    item.stash[_RAISED] = outcome.excinfo is not None


@pytest.fixture(scope="session")
def oncepool_app(pytestconfig: pytest.Config) -> App:
    """The App that `oncepool_app` in pytest's settings names, or ONCEPOOL_APP."""
    from processing.handlers.loading import load_app

    place = pytestconfig.getini(_OPTION) or os.environ.get("ONCEPOOL_APP")
    if not place:
        pytest.fail(f"set {_OPTION} = module:attribute in pytest's settings, or ONCEPOOL_APP")
    return load_app(str(place))


@pytest.fixture
def oncepool_tx() -> Any:
    """What handlers get as `tx`; None: a FakeCursor. For tests to say otherwise."""
    return None


@pytest.fixture
def oncepool_resources() -> dict[str, Any] | None:
    """What stands in for what the start hooks give; None: they run. For tests to say otherwise."""
    return None


@pytest.fixture
def oncepool_sandbox(
    request: pytest.FixtureRequest,
    oncepool_app: App,
    oncepool_tx: Any,
    oncepool_resources: dict[str, Any] | None,
) -> Iterator[Sandbox]:
    """The app with a producer, in memory: see `processing.testing.Sandbox`."""
    from processing.testing.sandbox import Sandbox

    with Sandbox(oncepool_app, oncepool_resources, tx=oncepool_tx) as sandbox:
        yield sandbox
        if request.node.stash.get(_RAISED, True):
            sandbox.clear_faults()  # it has ended before they could strike, or has not begun
