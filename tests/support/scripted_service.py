"""A service whose parts are played, and whose pool runs a script."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from consumer.config.settings import Settings
from consumer.intake.events import Polled
from consumer.service.service import Service
from consumer.service.signal_pipe import Signals
from processing.ipc.frames import Heartbeat
from processing.logs import get_logger
from tests.support.consumer_records import records
from tests.support.fake_kafka import FakeKafka
from tests.support.fake_pool import FakeSupervisor

A = ("t", 0)
"""Its partition."""
GRACE = 1.0


class ScriptedService:
    """`script`: functions by the number of the step they come after."""

    def __init__(self, signals: Signals) -> None:
        self.kafka = FakeKafka()
        self.pool = FakeSupervisor()
        self.signals = signals
        self.script: dict[int, Callable[[], Any]] = {}
        self.steps = 0
        step = self.pool.step

        def scripted(timeout: float) -> None:
            self.steps += 1
            if action := self.script.pop(self.steps, None):
                action()
            step(min(timeout, 0.01))

        self.pool.step = scripted  # type: ignore[method-assign]

    def run(self, grace: float = GRACE, *, read_again: bool = True, **more: Any) -> int:
        settings = Settings(grace=grace, read_again=read_again, **more)
        self.service = Service(
            settings, "me", self.pool, self.kafka, self.signals, get_logger("test")
        )
        return self.service.run()

    def arrive(self, *offsets: int) -> None:
        self.kafka.events.append(Polled(records(A, offsets)))

    def beats(self) -> list[dict[str, Any]]:
        return [f.facts for f in self.pool.maintenance.frames if isinstance(f, Heartbeat)]


def term() -> None:
    """As whoever stops a service, in a script."""
    signal.raise_signal(signal.SIGTERM)
