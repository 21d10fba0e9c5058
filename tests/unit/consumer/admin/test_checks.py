"""What `oncepool check` finds out about apps that are odd."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from consumer.admin import checks, other_apps
from consumer.admin.checks import check_app, check_health
from consumer.config.loader import load_settings
from consumer.config.settings import Settings

HANDLER = """
import atexit, os, sys, threading
from processing import App
app = App()

@app.handler("a")
def handle(payload): ...
"""
TALKS = """
sys.stdout.buffer.write(b"\\xff no end of line")
atexit.register(print, "bye")
threading.Thread(target=threading.Event().wait).start()
"""
ENDS = """
@app.on_worker_start
def ends(): os._exit(0)
"""
SLOW = """
@app.on_worker_start
def slow(): threading.Event().wait()
"""


@pytest.mark.parametrize(
    "more, state, detail",
    [(TALKS, "ok", "odd:app handles a"), (ENDS, "wrong", "the app ends the process")],
)
def test_what_an_app_prints_or_ends_misleads_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str, state: str, detail: str
) -> None:
    (tmp_path / "odd.py").write_text(HANDLER + more)
    monkeypatch.chdir(tmp_path)

    settings = load_settings({"app": "odd:app", "worker_start_timeout": 25.0}, environ={})
    (finding,) = check_app(settings)

    assert finding.state == state, finding
    assert detail in finding.detail


def test_an_app_that_takes_longer_than_workers_may_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd.py").write_text(HANDLER + SLOW)
    monkeypatch.chdir(tmp_path)

    settings = load_settings({"app": "odd:app", "worker_start_timeout": 0.5}, environ={})
    (finding,) = check_app(settings)

    assert (finding.state, "more than 0.5 s" in finding.detail) == ("wrong", True), finding
    assert "worker_start_timeout" in finding.advice


def test_another_group_with_the_same_types_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bill.py").write_text(HANDLER)
    monkeypatch.chdir(tmp_path)
    registered = [{"id": "x", "group": group, "types": ["a", "b"]} for group in ("shop", "bill")]
    monkeypatch.setattr(other_apps, "instances", lambda _client, _prefix: registered)
    given = {"app": "bill:app", "kafka_group": "bill", "redis_url": "redis://127.0.0.1:1"}

    fits, shared = check_app(load_settings(given, environ={}))

    assert (fits.state, shared.state) == ("ok", "warning")
    assert "group shop: a:" in shared.detail
    assert "group bill" not in shared.detail
    assert "ONCEPOOL_DATABASE_SCHEMA" in shared.advice
    assert "ONCEPOOL_REDIS_PREFIX" in shared.advice


@pytest.mark.parametrize("installed", [True, False])
def test_a_health_port_without_metrics_is_said_to_be_so(
    monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    monkeypatch.setattr(checks, "available", lambda: installed)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    (finding,) = check_health(Settings(health_port=port))
    assert (finding.state, "no /metrics" in finding.detail) == ("ok", not installed)
