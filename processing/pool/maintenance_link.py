"""The main process's side of the maintenance process: starts it, talks to it, replaces it."""

from __future__ import annotations

import selectors
import signal
import time
from collections.abc import Callable
from typing import Any, Final

from feedback.contract.record import Record
from processing.ipc.channel import ChannelClosed
from processing.ipc.child import Child
from processing.ipc.frames import (
    Alive,
    CancelAsked,
    CannotServe,
    DatabaseState,
    DeclareApp,
    DueRows,
    Frame,
    FromMaintenance,
    Heartbeat,
    JournalUnusable,
    LeasesRenewed,
    LimitsFound,
    MaintenanceReady,
    PartAnswered,
    PartStands,
    ProbeDatabase,
    RowDueIn,
    Stop,
    ToMaintenance,
    WantDoubts,
    WantRows,
    WorkerReady,
)
from processing.logs import BoundLogger
from processing.pool.restart_backoff import REFUSED, RestartBackoff
from processing.pool.unstarted_parts import UnstartedParts

SILENCE: Final = 20.0
"""Seconds after which a process that says nothing to a heartbeat is replaced: its leases last
longer."""
SILENT_START: Final = 120.0
"""The same of one that has said nothing at all yet: where CPU is short it is still loading its
modules, and the next one would begin at nothing."""
ASKS: Final = (DeclareApp, Heartbeat, ProbeDatabase, RowDueIn, Stop, WantDoubts, WantRows)
"""What leaves nothing undone where it is lost with its process."""
DIED: Final = (
    "maintenance processes in a row died while they started, before they could say why; see what"
    " the log says before this, and what ends processes here"
)
SLOW: Final = (
    "maintenance processes in a row said nothing within {:.0f} s of their start, and were ended:"
    " see what the CPU of this machine or container does"
)


class MaintenanceLink(UnstartedParts):
    """One maintenance process at a time."""

    def __init__(
        self,
        settings: dict[str, Any],
        selector: selectors.BaseSelector,
        log: BoundLogger,
        on_answered: Callable[[list[Record]], None] = lambda _records: None,
    ) -> None:
        """`on_answered` gets the records of each part that it has answered for."""
        super().__init__(on_answered)
        self._settings = settings
        self._selector = selector
        self._log = log
        self._child: Child | None = None
        self._respawn = RestartBackoff(DIED)
        self._wanted = False
        self._served = False
        """The journal could be used once: whoever comes goes on with it."""
        self._events: list[FromMaintenance] = []
        self.ready: MaintenanceReady | None = None
        """What the first one said of the database's schema, once it has; later ones are events."""
        self.database_up = False
        """Whether the database was reached when it was last looked at."""
        self._declared = DeclareApp((), (), ())
        """What its workers have said of the app."""
        self._asked: float | None = None
        """When it was sent the first heartbeat that it has said nothing after."""
        self._heard = False
        """This one has said something."""
        self._owes = False
        """This one was given something to write."""
        self.fatal: str | None = None
        """Why none can run."""

    @property
    def alive(self) -> bool:
        """Whether a process is there."""
        return self._child is not None

    def start(self) -> None:
        """Starts the process, and from now on starts it again when it dies."""
        self._wanted = True
        self._spawn(time.monotonic())

    def step(self, now: float, *, probing: bool) -> list[FromMaintenance]:
        """Replaces a process that died or hangs; returns what was heard since the last step.

        `probing`: somebody waits to hear whether the database can be reached.
        """
        if self._child is not None and self._child.sentinel is None:
            self._reap()
        longest = SILENCE if self._heard else SILENT_START
        if self._asked is not None and now - self._asked > longest:
            # The leases run out, and others take what waits in hand here; its tokens guard it.
            self._log.error("the maintenance process does not answer: replacing it", after=longest)
            self._kill(None if self._heard else SLOW.format(longest))
        if not self.alive and self._wanted:
            self.fatal = self.fatal or self._respawn.hopeless
            if self.fatal and self.refusing:
                self._log.error("requests not answered: no maintenance process", n=self.refusing)
                self._forget()
            if self._respawn.may(now):
                self._spawn(now)
                if probing:
                    self.send(ProbeDatabase())
        events, self._events = self._events, []
        return events

    def send(self, frame: ToMaintenance) -> bool:
        """Sends a frame; False: no process is there to take it.

        What one was sent and dies with is lost, but for what it has to answer for.
        """
        if self._child is None:
            return False
        try:
            self._child.channel.send(frame)
        except ChannelClosed:
            return False
        if isinstance(frame, Heartbeat) and self._asked is None:
            self._asked = time.monotonic()
        self._owes |= not isinstance(frame, ASKS)
        self._listen()
        return True

    def learn(self, app: WorkerReady) -> None:
        """What the app is like, as its workers say."""
        self.decoded, self.pure_once = app.decoded, app.pure_once
        self.comparable = app.comparable
        declared = DeclareApp(tuple(app.types), app.schedules, app.uses)
        if declared != self._declared:
            self._declared = declared
            self.send(declared)

    # The process

    def close(self, timeout: float) -> bool:
        """Lets it finish what it was given, at most `timeout` seconds; False: some may be lost."""
        self._wanted = False
        if self._child is None:
            return True
        self.send(Stop())
        end = time.monotonic() + timeout
        while self.alive and time.monotonic() < end:
            for key, mask in self._selector.select(0.05):
                if key.data in (self._on_channel, self._on_sentinel):
                    key.data(mask)
            self._reap()
        if not self.alive:
            return True
        lost = self._heard or self._owes
        if lost:
            self._log.error("the maintenance process did not end and is killed: statuses and"
                            " counters that it has not written are lost",
                            after=timeout)  # fmt: skip
        else:
            self._log.info("the maintenance process still starts and is ended", after=timeout)
        self._kill()
        return not lost

    def _reap(self) -> None:
        """Finds an ended process where the system has no descriptor that tells."""
        if self._child is not None and self._child.ended():
            self._on_end()

    def _kill(self, why: str | None = None) -> None:
        if self._child is not None:
            self._child.signal(signal.SIGKILL)
            self._child.wait(1.0)
            self._on_end(why)

    def _spawn(self, now: float) -> None:
        try:
            child = self._child = Child(
                "processing.maintenance", {**self._settings, "served": self._served}
            )
        except OSError as error:
            self._log.error("the maintenance process could not be started", error=str(error))
            self._respawn.failed(now, REFUSED.format("maintenance processes", error))
            return
        self._selector.register(child.channel, selectors.EVENT_READ, self._on_channel)
        if child.sentinel is not None:
            self._selector.register(child.sentinel, selectors.EVENT_READ, self._on_sentinel)
        if any(self._declared):
            self.send(self._declared)
        self._hand_over_again()

    def _listen(self) -> None:
        child = self._child
        if child is None or child.channel not in self._selector.get_map():
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if child.channel.backlog else 0)
        self._selector.modify(child.channel, events, self._on_channel)

    def _on_channel(self, mask: int) -> None:
        child = self._child
        if child is None:
            return
        try:
            if mask & selectors.EVENT_WRITE:
                child.channel.flush()
                self._listen()
            if mask & selectors.EVENT_READ:
                for frame in child.channel.receive():
                    self._on_frame(frame)
        except ChannelClosed:
            self._selector.unregister(child.channel)

    def _on_sentinel(self, _mask: int) -> None:
        self._on_end()

    def _on_frame(self, frame: Frame) -> None:
        self._asked, self._heard = None, True
        match frame:
            case Alive():
                return
            case PartAnswered():
                self._answered(frame)
                return
            case PartStands():
                self._stands(frame)
                return
            case CannotServe(reason):
                if self.ready is None:
                    self.fatal = reason
                else:  # another is started: workers go on meanwhile
                    self._log.error("the maintenance process could not start", reason=reason)
                return
            case JournalUnusable():
                self.fatal = frame.reason
                return
            case MaintenanceReady():
                self._looked(frame)
            case DatabaseState(up):
                self.database_up = up
                self._served |= up
            case LeasesRenewed() | DueRows() | CancelAsked() | LimitsFound():
                pass
            case _:
                raise AssertionError(f"the maintenance process sent {frame!r}")
        self._events.append(frame)

    def _looked(self, found: MaintenanceReady) -> None:
        self._respawn.ready()
        self.database_up = found.ok
        self._served |= self.database_up
        if found.unusable and self.ready is not None and not self._served:
            self.fatal = found.unusable.reason
        self.ready = self.ready or found

    def _on_end(self, why: str | None = None) -> None:
        """`why`: what is known of it, where it failed to start."""
        child = self._child
        if child is None:
            return
        for frame in child.channel.drain():
            self._on_frame(frame)
        child.wait(1.0)
        self._child = None
        self._asked, self._heard, self._owes = None, False, False
        for registered in (child.channel, child.sentinel):
            if registered is not None and registered in self._selector.get_map():
                self._selector.unregister(registered)
        child.close()
        if self._wanted:
            if self.fatal is None:  # else it has said why, and all ends with it
                self._log.error("the maintenance process died", cause=child.cause)
            self._respawn.failed(time.monotonic(), why)
