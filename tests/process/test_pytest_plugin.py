"""The pytest plugin in a project of somebody else's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from consumer.admin.journal import connect
from consumer.config.loader import load_settings
from feedback.client.client import Client
from feedback.operations.schedules import list_schedules
from stack.external import VARIABLES

APP = """
from processing import App, Request

app = App()

@app.on_worker_start
def rate():
    raise AssertionError("the tests give it")

@app.handler("pay")
def pay(payload: dict, tx, request: Request, rate: int) -> int:
    tx.execute("INSERT", (request.id,))
    return payload["amount"] * rate
"""
TESTS = """
import pytest
from processing.testing import FakeCursor

@pytest.fixture
def oncepool_resources():
    return {"rate": 2}

@pytest.fixture
def oncepool_tx():
    return FakeCursor()

def test_it_is_paid(oncepool_sandbox, oncepool_tx):
    status = oncepool_sandbox.client.call("pay", {"amount": 5}, request_id="p")
    assert status.result == 10
    assert oncepool_tx.statements == [("INSERT", ("p",))]

def test_others_know_nothing_of_it(oncepool_sandbox):
    assert oncepool_sandbox.requests() == []
"""
FAULTS = """
import pytest
from test_shop import oncepool_resources

def test_a_misspelt_type(oncepool_sandbox):
    oncepool_sandbox.lose("pya")

def test_it_is_skipped_before(oncepool_sandbox):
    oncepool_sandbox.lose("pay")
    pytest.skip()

@pytest.fixture
def absent(oncepool_sandbox):
    oncepool_sandbox.lose("pay")
    pytest.skip()

def test_it_does_not_begin(absent): ...

@pytest.mark.xfail
def test_it_fails_before(oncepool_sandbox):
    oncepool_sandbox.lose("pay")
    assert False
"""
LIGHT = """
import sys

def test_nothing_is_loaded_that_no_test_asks_for():
    heavy = {"pydantic", "psycopg", "confluent_kafka", "redis", "structlog"}
    assert heavy & sys.modules.keys() == set()
"""
PLAYED = """
import os
from types import SimpleNamespace
import stack
from stack.external import VARIABLES

def up(*_, **__):
    given = [os.environ.get(name) for name in VARIABLES.values()]
    return SimpleNamespace(given=given, down=lambda **_: None)

stack.up = up
"""


def run_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
         "-p", "no:schemathesis", "-p", "no:hypothesispytest", *arguments],
        cwd=folder, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip


def test_a_project_tests_its_app_with_one_setting(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "test_shop.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\noncepool_app = shop:app\n")
    done = run_in(tmp_path)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_a_fault_that_never_struck_is_an_error_of_a_test_that_passes_alone(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "test_shop.py").write_text(TESTS)
    (tmp_path / "test_faults.py").write_text(FAULTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\noncepool_app = shop:app\n")
    done = run_in(tmp_path, "test_faults.py")
    assert "1 passed, 2 skipped, 1 xfailed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "never struck: lose('pya')" in done.stdout


def test_a_project_without_an_app_is_told_and_pays_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_light.py").write_text(LIGHT)
    (tmp_path / "test_none.py").write_text("def test_it(oncepool_sandbox): ...")
    done = run_in(tmp_path)
    assert "1 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "set oncepool_app = module:attribute" in done.stdout


def test_the_local_stack_is_a_fixture(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """What a shell has set leads a test nowhere."""
    for name in ("KAFKA_TOPIC", "KAFKA_RESULTS_TOPIC", "CONFIG", "OUTBOX_DATABASE_URL", "TRACING"):
        monkeypatch.setenv(f"ONCEPOOL_{name}", "of-the-shell")
    monkeypatch.setenv("ONCEPOOL_STACK_DATA", "stays")
    environment: dict[str, str] = request.getfixturevalue("oncepool_environment")
    assert environment["ONCEPOOL_KAFKA_TOPIC"] == environment["ONCEPOOL_KAFKA_TOPICS"]
    assert "of-the-shell" not in os.environ.values()
    assert os.environ["ONCEPOOL_STACK_DATA"] == "stays"
    settings = load_settings(environ=environment)
    with connect(settings) as connection:
        assert list_schedules(connection, schema=settings.database_schema) == []
    with Client.from_env() as client:
        client.submit("t", {})
        client.flush()


def test_addresses_of_the_shell_are_no_stack_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conftest.py").write_text(PLAYED)
    (tmp_path / "test_stack.py").write_text(
        "def test_it(oncepool_stack): assert oncepool_stack.given == [None, None, None]"
    )
    for variable in VARIABLES.values():
        monkeypatch.setenv(variable, "of-the-shell:1")
    done = run_in(tmp_path)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
