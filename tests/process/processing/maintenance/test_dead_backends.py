"""At a stop, dead workers' sessions that do not end hold up nothing but their own requests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import orjson
import psycopg
import pytest

from feedback.backend import Backend
from processing.ipc.frames import (
    DueRows,
    Park,
    PartAnswered,
    PartStands,
    ReleaseClaims,
    WantRows,
)
from stack import Stack
from tests.process.processing.maintenance.test_unstarted import message
from tests.support.backends import backend_of, stopped
from tests.support.maintenance import MaintenanceProcess, StartMaintenance
from tests.support.waiting import eventually
from tests.support.waiting_rows import WaitingRows


@contextlib.contextmanager
def stays(stack: Stack) -> Iterator[Backend]:
    """A session that does not end meanwhile."""
    with psycopg.connect(stack.database, autocommit=True) as dead:
        backend = backend_of(dead)
        with stopped(backend[0]):
            yield backend


def hand_over(maintenance: MaintenanceProcess, rows: WaitingRows, backend: Backend) -> None:
    """As a main process that ends: half of its suspects may be at work in the session yet."""
    rows.add("w-1", "w-2")
    maintenance.send(WantRows(1, 10, {}, []))
    assert len(maintenance.wait_for(DueRows).rows) == 2
    gone = (backend[0], "2026-01-01 00:00:00+00")
    maintenance.send(Park(1, "parked", [message(1)], [], [(1, 0)], [backend]))
    maintenance.send(ReleaseClaims([("w-1", 1)], [backend]))
    maintenance.send(Park(2, "parked", [message(2)], [], [(1, 0)], [gone]))
    maintenance.send(ReleaseClaims([("w-2", 1)], [gone]))


def test_they_hold_up_their_own_requests_alone(
    ready: StartMaintenance, rows: WaitingRows, stack: Stack
) -> None:
    maintenance = ready()
    with stays(stack) as backend:
        hand_over(maintenance, rows, backend)
        assert maintenance.wait_for(PartAnswered, timeout=20)[:2] == (2, 1)
        assert maintenance.wait_for(PartStands, timeout=20).part == 1
        eventually(lambda: rows.columns("w-2", "token") == (None,), 20)
        # Also what has nothing to do with any of it.
        rows.add("w-3")
        maintenance.send(WantRows(2, 1, {}, []))
        frame = maintenance.wait_for(DueRows, 2, timeout=20)
        assert len(frame.rows) == 1
        assert rows.columns("w-1", "token") == ("here:1",)
        assert rows.states().keys() == {"r-2", "w-1", "w-2", "w-3"}
    assert maintenance.wait_for(PartAnswered, 2)[:2] == (1, 1)
    eventually(lambda: rows.columns("w-1", "token") == (None,))
    assert rows.states()["r-1"] == "waiting"


def test_at_a_stop_the_next_owner_has_what_cannot_be_settled(
    ready: StartMaintenance, rows: WaitingRows, stack: Stack, capfd: pytest.CaptureFixture[str]
) -> None:
    maintenance = ready()
    with stays(stack) as backend:
        hand_over(maintenance, rows, backend)
        maintenance.send(Park(3, "parked", [message(3)], [], [], []))
        assert maintenance.stop(20) == 0
        maintenance.received(PartAnswered)
        answered = {frame.part for frame in maintenance.received(PartAnswered)}
        assert answered == {2, 3}, "the main process says that it left the other in hand"
        assert rows.states() == {"r-2": "waiting", "r-3": "waiting", "w-1": "waiting",
                                 "w-2": "waiting"}  # fmt: skip
        assert rows.columns("w-1", "token") == ("here:1",), "left to its lease"
        assert rows.columns("w-2", "token") == (None,)
        written = capfd.readouterr().err.splitlines()
    # Kafka clients of tests before may still write lines of their own.
    lines = [orjson.loads(line) for line in written if line.startswith("{")]
    [parked] = [line for line in lines if "were not parked" in line["message"]]
    assert parked["first"] == ["r-1"]
    [left] = [line for line in lines if "were not given back" in line["message"]]
    assert left["first"] == ["w-1"]
    [stays_] = [line for line in lines if "requests to be parked wait" in line["message"]]
    assert stays_["backend_pid"] == backend[0]
