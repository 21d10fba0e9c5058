"""What tests of the service share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from consumer.service import service as service_module
from consumer.service.signal_pipe import Signals
from tests.support.scripted_service import ScriptedService


@pytest.fixture
def signals() -> Iterator[Signals]:
    signals = Signals()
    yield signals
    signals.restore()


@pytest.fixture
def bench(signals: Signals, monkeypatch: pytest.MonkeyPatch) -> ScriptedService:
    monkeypatch.setattr(service_module, "AFTER_KILL", 0.1)
    return ScriptedService(signals)
