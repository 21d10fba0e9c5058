"""A consumer process without workers: the real service with a fake pool.

    python -m tests.support.consumer_process SETTINGS LOG

SETTINGS is a JSON object of `Settings`, with "instance"; LOG is a file that gets a line of JSON for
each batch that is delivered, dropped or abandoned. Lines are written before anything else happens,
so that they are there also when the process is killed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from consumer.config.settings import Settings
from consumer.intake.events import Action, Drop
from consumer.intake.kafka import Kafka
from consumer.intake.loop import Loop
from consumer.service.service import Service
from consumer.service.signal_pipe import Signals
from feedback.contract.record import OFFSET, PARTITION, Record
from processing.logs import configure, get_logger
from tests.support.fake_pool import FakeSupervisor


def main() -> int:
    given: dict[str, Any] = json.loads(sys.argv[1])
    instance = given.pop("instance")
    log = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(**fields: Any) -> None:
        os.write(log, json.dumps(fields).encode() + b"\n")

    def on_submit(records: Sequence[Record]) -> None:
        note(what="delivered", records=[[r[PARTITION], r[OFFSET]] for r in records])

    class NotingLoop(Loop):
        def _act(self, actions: list[Action]) -> None:  # type: ignore[override]
            for action in actions:
                if isinstance(action, Drop):
                    note(what="dropped", partition=action.place[1], n=action.count,
                         cause=action.cause)  # fmt: skip
            super()._act(actions)

    configure("json", "info", process=instance)
    signals = Signals()
    pool = FakeSupervisor(on_submit)
    pool.keep = False
    pool.per_step = given.pop("per_step", None)
    settings = Settings(**given)
    service = Service(
        settings, instance, pool, Kafka(settings, get_logger("kafka")), signals,
        get_logger("service"), loop=NotingLoop,
    )  # fmt: skip
    note(what="started", pid=os.getpid())
    code = service.run()
    note(what="ended", code=code, counts=service.counts)
    return code


if __name__ == "__main__":
    sys.exit(main())
