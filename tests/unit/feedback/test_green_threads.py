"""Threads that gevent or eventlet have made green ones: librdkafka would stop all of them."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from feedback import AsyncClient, Client, ConfigurationError
from feedback.outbox.relay import Relay, Route
from feedback.status.memory_store import MemoryStatusStore
from tests.support.client import FakeProducer

ROUTES = {"default": Route("requests", {"bootstrap.servers": "127.0.0.1:1"})}
PATCHED = {
    "gevent.monkey": SimpleNamespace(is_module_patched=lambda name: name == "threading"),
    "eventlet.patcher": SimpleNamespace(is_monkey_patched=lambda name: name == "thread"),
}


@pytest.mark.parametrize("name", PATCHED)
def test_green_threads_are_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, name, PATCHED[name])
    for made in (
        lambda: Client(FakeProducer(), MemoryStatusStore(), "requests"),
        lambda: AsyncClient(FakeProducer(), MemoryStatusStore(), "requests"),
        lambda: Relay("postgresql://127.0.0.1:1/x", ROUTES),
    ):
        with pytest.raises(ConfigurationError, match=f"{name.partition('.')[0]} .*gthread"):
            made()


def test_a_package_that_has_patched_nothing_is_no_hindrance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said_no = SimpleNamespace(is_module_patched=lambda _: False, is_monkey_patched=lambda _: False)
    for name in PATCHED:
        monkeypatch.setitem(sys.modules, name, said_no)
    Relay("postgresql://127.0.0.1:1/x", ROUTES)
    Client(FakeProducer(), MemoryStatusStore(), "requests").close()
