"""The last work of a maintenance process, whose session at the database is ended under it."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence

from feedback.contract.counts import Count
from feedback.contract.states import State
from feedback.status.status import StatusWrite
from processing.ipc.frames import (
    DeclareApp,
    DueRows,
    Frame,
    MaintenanceReady,
    ReleaseClaims,
    WantRows,
)
from processing.logs import get_logger
from processing.maintenance.database_loop import DatabaseLoop
from processing.maintenance.health import Health
from processing.maintenance.unstarted import UnstartedRecords
from processing.settings import MaintenanceSettings
from stack import Stack
from tests.support import eventually
from tests.support.maintenance import counters, record
from tests.support.waiting_rows import WaitingRows


class Held:
    """Where statuses go: the first ones keep the database's thread until it may go on."""

    def __init__(self) -> None:
        self.there, self.go = threading.Event(), threading.Event()

    def publish(self, writes: Sequence[StatusWrite]) -> None:
        if writes:
            self.there.set()
            assert self.go.wait(60)


def part(number: int) -> UnstartedRecords:
    return UnstartedRecords(number, "parked", [record(number)], [], [], [], limited=False)


def test_it_is_done_over_another_connection(stack: Stack, schema: str, rows: WaitingRows) -> None:
    """What is parked, claims that are given back, and the last counters."""
    rows.add("due")
    instance, held, told = uuid.uuid4().hex[:8], Held(), list[Frame]()
    settings = MaintenanceSettings(instance, stack.database, schema, stack.redis, "p", {})
    health = Health(60.0, time.monotonic)
    loop = DatabaseLoop(settings, told.append, held.publish, health, get_logger("test"))
    loop.start()
    eventually(lambda: [frame for frame in told if isinstance(frame, MaintenanceReady)])
    loop.declare(DeclareApp(("effect",), (), ()))
    loop.on_queue_frame(WantRows(1, 1, {}, []))
    [due] = eventually(lambda: [frame for frame in told if isinstance(frame, DueRows)])
    loop.park(part(1))
    assert held.there.wait(60)

    loop.park(part(2))
    loop.on_queue_frame(ReleaseClaims([("due", due.order)], []))
    loop.count({Count("payment.create", State.DONE, "last"): 7})
    loop.stop()
    session = f"pid FROM pg_stat_activity WHERE application_name LIKE '%{instance}'"
    ended = rows.query(f"SELECT pg_terminate_backend(pid, 20000), {session}")
    assert [gone for gone, _ in ended] == [True]
    held.go.set()
    assert loop.join(60)

    found = rows.query(f"SELECT id, state, token IS NULL FROM {schema}.requests ORDER BY id")
    assert found == [(name, "waiting", True) for name in ("due", "r-1", "r-2")]
    assert counters(stack, schema)["payment.create", "done", "last"] == 7
