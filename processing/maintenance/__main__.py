"""The maintenance process: housekeeping of one instance, beside its main process and workers.

    python -m processing.maintenance PARENT_PID SOCKET

It holds no user code. What it is told and says stands in
`processing.ipc.frames`: `ToMaintenance`, `FromMaintenance`.
"""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # until it serves: imports leave no garbage, and take a tenth longer

import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import processing.lean_redis  # noqa: F401 - the first to load it
from feedback.contract.counts import PlainCount
from feedback.contract.states import UNKNOWN_TYPE
from feedback.errors import OncepoolError
from feedback.postgres import one_line
from feedback.status.opening import open_store
from feedback.status.sender import StatusSender
from processing.ipc.channel import BlockingChannel, ChannelClosed
from processing.ipc.frames import (
    Alive,
    CannotServe,
    Configure,
    Counts,
    DeclareApp,
    EndCalls,
    Frame,
    Heartbeat,
    Measurements,
    Park,
    ProbeDatabase,
    Refuse,
    ReleaseClaims,
    RenewCalls,
    RenewClaims,
    RowDueIn,
    Stop,
    WantDoubts,
    WantRows,
)
from processing.ipc.parent_watch import EXIT_ORPHANED, tie_to_parent
from processing.ipc.standard_streams import exit_at_once
from processing.logs import configure, get_logger
from processing.maintenance.database_loop import DatabaseLoop
from processing.maintenance.health import Health
from processing.maintenance.instance_metrics import InstanceMetrics
from processing.maintenance.membership_loop import MembershipLoop
from processing.maintenance.result_relay import result_relay
from processing.maintenance.unstarted import UnstartedRecords
from processing.settings import MaintenanceSettings

if TYPE_CHECKING:
    from processing.maintenance.health_server import HealthServer

TURN = 0.5
"""Seconds that the loop waits for a frame at most."""
FLUSH_AT_EXIT = 2.0
"""Seconds that statuses not yet sent may take at the end, and then the last database work."""
LEAVE_WITHIN = 4.25
"""Seconds for these and the statuses of that work. The health server takes half a second to close,
and after 5 the main process kills this one."""
MOST_STATUSES = 100_000
"""Statuses that wait for Redis: everything in hand may be refused at once."""
MOST_UNKNOWN = 100
"""Types without a handler that are named: anybody can make up types."""


def main() -> None:
    """Runs until the main process says stop or is gone."""
    parent, sock = map(int, sys.argv[1:3])
    # The main process decides when this process ends, whatever the group or a supervisor is sent.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    tie_to_parent(parent)
    channel = BlockingChannel(socket.socket(fileno=sock))
    try:
        code = _serve(channel)
    except ChannelClosed:
        code = EXIT_ORPHANED
    # Not sys.exit: a thread that hangs in a dead connection must not keep the process.
    exit_at_once(code)


def _serve(channel: BlockingChannel) -> int:
    frame = channel.receive()
    if not isinstance(frame, Configure):
        raise TypeError(f"the first frame says how to run, not {frame!r}")
    settings = MaintenanceSettings(**frame.settings)
    configure(**settings.log, process="maintenance")
    try:
        maintenance = Maintenance(channel, settings)
    except (OSError, OncepoolError) as error:  # these say it all
        channel.send(CannotServe(one_line(error)))
        return 1
    except Exception:  # noqa: BLE001 - whatever keeps it from starting is told to main
        channel.send(CannotServe(traceback.format_exc()))
        return 1
    return maintenance.serve()


class Maintenance:
    """Takes frames in one thread; what may have to wait is done in others."""

    def __init__(self, channel: BlockingChannel, settings: MaintenanceSettings) -> None:
        self._channel = channel
        self._settings = settings
        self._log = get_logger("oncepool.maintenance")
        self._health = Health(settings.stale_after, time.monotonic)
        self._sender = StatusSender(
            open_store(settings.redis_url, settings.redis_prefix),
            max_queue=MOST_STATUSES,
        )
        self._unknown: set[str] = set()
        """Types without a handler that the log has named."""
        self._metrics: InstanceMetrics | None = None
        if settings.metrics:
            self._metrics = InstanceMetrics(
                settings.instance, self._health, lambda: self._sender.dropped, time.monotonic
            )
        self._database = DatabaseLoop(
            settings, channel.send, self._sender.put, self._health, self._log, self._metrics
        )
        self._membership = MembershipLoop(
            settings, channel.send, self._database.leave_to_others, self._health, self._log
        )
        self._results = result_relay(settings, self._log)
        self._server: HealthServer | None = None
        if settings.health_port is not None:
            self._server = _health_server(settings, self._health, self._metrics)
            self._membership.health_port = self._server.port
            self._log.info("health endpoints", host=settings.health_host, port=self._server.port)

    def serve(self) -> int:
        """Runs until told to stop. Raises ChannelClosed when the main process is gone."""
        self._database.start()
        self._results.start()
        self._membership.start()
        gc.freeze()
        gc.enable()
        while True:
            frame = self._channel.receive(TURN)
            self._health.turn()
            if frame is not None and not self._on_frame(frame):
                break
            self._membership.look_if_it_hangs()
            self._database.cut_if_hung()
        self._leave()
        return 0

    def _on_frame(self, frame: Frame) -> bool:
        """Acts on a frame; False when it is the last."""
        match frame:
            case Heartbeat(facts):
                self._heard(facts)
            case Counts() | Measurements():
                self._on_reports(frame)
            case ProbeDatabase():
                self._database.probe()
            case DeclareApp():
                self._database.declare(frame)
            case Refuse():
                self._database.refuse(UnstartedRecords(*frame, [], []))
            case Park():
                self._database.park(UnstartedRecords(*frame))
            case EndCalls():
                self._database.end_calls(frame)
            case (
                WantRows()
                | WantDoubts()
                | RowDueIn()
                | RenewClaims()
                | RenewCalls()
                | ReleaseClaims()
            ):
                self._database.on_queue_frame(frame)
            case Stop():
                return False
            case _:
                raise AssertionError(f"the main process sent {frame!r}")
        return True

    def _heard(self, facts: dict[str, Any]) -> None:
        self._health.heartbeat(facts)
        self._channel.send(Alive())
        self._membership.heard(facts)
        if self._metrics is not None:
            self._metrics.heartbeat(facts)

    def _on_reports(self, frame: Counts | Measurements) -> None:
        if isinstance(frame, Counts):
            self._database.count(frame.counts)
            self._name_unknown(frame.counts)
            self._results.wake()
        elif self._metrics is not None:
            self._metrics.measured(frame)

    def _name_unknown(self, counts: Mapping[PlainCount, int]) -> None:
        """One line a type, as its requests wait and nothing else says so."""
        for kind, state, code in counts:
            new = code == UNKNOWN_TYPE and kind not in self._unknown
            if new and len(self._unknown) < MOST_UNKNOWN:
                self._unknown.add(kind)
                self._log.warning(
                    "no handler of this type here: its requests wait for an instance that has one",
                    type=kind, state=state,
                )  # fmt: skip

    def _leave(self) -> None:
        """Statuses first, as somebody waits for them; the database writes meanwhile.

        What it writes last has statuses as well, so these end last. A database that is away takes
        no time from those that are there before.
        """
        end, before = time.monotonic() + LEAVE_WITHIN, self._sender.dropped
        for work in (self._database, self._results, self._membership):
            work.stop()
        self._sender.flush(FLUSH_AT_EXIT)
        joined_by = time.monotonic() + FLUSH_AT_EXIT
        if not self._database.join(FLUSH_AT_EXIT):
            self._log.warning(
                "the last work in the database has not ended: it may be done all the same; its"
                " statuses and counts are lost", after=FLUSH_AT_EXIT,
            )  # fmt: skip
        self._send_last(end - time.monotonic(), before)
        for thread in (self._results, self._membership):
            thread.join(max(0.0, joined_by - time.monotonic()))
        if self._server is not None:
            self._server.close()

    def _send_last(self, timeout: float, before: int) -> None:
        """Ends the sender; says what is lost, where `before` were dropped until the end began."""
        self._sender.close(timeout / 2)  # as it may take that twice: to send, and to end
        stats = self._sender.stats()
        if lost := stats.dropped - before + stats.queued:  # the latter in a write that hangs
            self._log.warning("statuses lost at the end", dropped=lost)


def _health_server(
    settings: MaintenanceSettings, health: Health, metrics: InstanceMetrics | None
) -> HealthServer:
    from processing.maintenance.health_server import HealthServer

    host, port = settings.health_host, settings.health_port or 0
    try:
        return HealthServer(host, port, health, None if metrics is None else metrics.text)
    except OSError as error:
        raise OSError(
            f"{host}:{port} can't serve /livez and /readyz ({error.strerror}); set another"
            " health_port or stop what listens there"
        ) from None


if __name__ == "__main__":
    main()
