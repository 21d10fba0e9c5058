"""A service that runs as a process of this machine."""

from __future__ import annotations

import shutil
import signal
from abc import abstractmethod
from collections import deque
from pathlib import Path

from stack import places, processes
from stack.errors import ServiceFailed, StackError
from stack.service import LOG_LINES, StackService, State, Tell
from stack.waiting import pauses

PORTS_TIMEOUT = 15.0
"""Seconds that a killed server may go on holding its ports: on a busy machine its threads, of which
one has them all, end late."""


class Server(StackService):
    """A service as a process; subclasses say how to prepare and run it, and when it is ready."""

    stop_timeout = 15.0
    stop_signal = signal.SIGTERM
    user: int | None = None

    def __init__(self, name: str, port: int, data: Path) -> None:
        super().__init__(name, port)
        self.folder = data / name
        """Where the server works. Nothing else may work there: see stack.processes."""
        self.log = data / f"{name}.log"
        self._pid = data / f"{name}.pid"
        self._start_of_log = 0

    @property
    def ports(self) -> set[int]:
        """All ports that the server listens on."""
        return {self.port}

    @abstractmethod
    def prepare(self, tell: Tell) -> None:
        """Makes files that the server needs."""

    @abstractmethod
    def command(self) -> list[str | Path]:
        """What to run."""

    def state(self) -> State:
        process = self._process()
        if process is None:
            return "stopped"
        return "paused" if processes.is_paused(process) else "running"

    def launch(self, tell: Tell) -> bool:
        state = self.state()
        if state == "paused":
            self.resume()
        if state != "stopped":
            tell("already running")
            return False
        # First: processes of a server that was killed would hold its port and its data.
        self.clear()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log.touch()
        self._start_of_log = self.log.stat().st_size
        self.prepare(tell)
        # The server itself says so where one is still taken.
        places.become_free(self.ports, PORTS_TIMEOUT)
        tell("starting")
        pid = processes.spawn(self.command(), self.folder, self.log, user=self.user)
        self._pid.write_text(str(pid))
        return True

    def stop(self, *, kill: bool = False) -> None:
        process = self._process()
        if process is not None and not kill:
            # A paused server takes the signal only after it goes on.
            self.resume()
            processes.send([process], self.stop_signal)
            processes.until_gone(self.folder, self.stop_timeout)
        self.clear()

    def pause(self) -> None:
        # Again until none is left out: a server may fork while it is being paused.
        for _ in pauses(5.0):
            moving = [p for p in processes.processes_in(self.folder) if not processes.is_paused(p)]
            if not moving:
                return
            processes.send(moving, signal.SIGSTOP)
        raise StackError(f"{self.name} could not be paused within 5 s")

    def resume(self) -> None:
        processes.send(processes.processes_in(self.folder), signal.SIGCONT)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        for file in (self.log, self._pid):
            file.unlink(missing_ok=True)

    def clear(self) -> None:
        if not processes.kill_all(self.folder):
            left = ", ".join(str(p.pid) for p in processes.processes_in(self.folder))
            raise StackError(f"processes of {self.name} cannot be ended: {left}")
        self._pid.unlink(missing_ok=True)

    def tail(self) -> list[str]:
        """The last lines of the log since the last start."""
        with self.log.open("rb") as log:
            log.seek(self._start_of_log)
            lines = (line.decode(errors="replace").rstrip() for line in log)
            return list(deque((line for line in lines if line), maxlen=LOG_LINES))

    def failed(self, why: str) -> ServiceFailed:
        return ServiceFailed(self.name, why, self.log, self.tail())

    def _process(self) -> processes.Process | None:
        try:
            pid = int(self._pid.read_text())
        except (OSError, ValueError):
            return None
        return processes.process_of(pid, self.folder)
