"""The worker processes: started, talked to, looked at, and followed to their end."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from processing.ipc.channel import ChannelClosed, WrongFrame
from processing.ipc.child import Child, reap_orphans
from processing.ipc.frames import CannotServe, Frame, Stop, ToWorker
from processing.ipc.progress import Running
from processing.logs import BoundLogger
from processing.pool.actions import Signal

OnFrame: TypeAlias = Callable[[int, Frame], None]
"""Takes a worker's number and what it sent."""
OnEnd: TypeAlias = Callable[[int, str, Running | None], None]
"""Takes the number of a worker that has ended, the cause, and what it ran then, after all frames
that it sent."""


class WorkerProcesses:
    """By number. Their sockets and sentinels stand in the selector."""

    def __init__(
        self,
        settings: dict[str, Any],
        selector: selectors.BaseSelector,
        *,
        on_frame: OnFrame,
        on_end: OnEnd,
        log: BoundLogger,
    ) -> None:
        self._settings = settings
        self._selector = selector
        self._on_frame = on_frame
        self._on_end = on_end
        self._log = log
        self._children: dict[int, Child] = {}
        self._expected: dict[int, str] = {}
        """How those end that were told to stop, or have said why they can't serve."""
        self._is_init = os.getpid() == 1

    def __len__(self) -> int:
        """How many have not ended."""
        return len(self._children)

    @property
    def numbers(self) -> list[int]:
        """Those of processes that have not ended."""
        return list(self._children)

    def pid(self, number: int) -> int:
        """Of one that has not ended."""
        return self._children[number].pid

    def looks(self, numbers: Iterable[int]) -> dict[int, Running | None]:
        """What each of these that has not ended runs right now, as its slot says."""
        children = ((number, self._children.get(number)) for number in numbers)
        return {n: c.slot.read() for n, c in children if c is not None and c.slot is not None}

    def look_at_seats(
        self, seats: Mapping[int, Iterable[int]]
    ) -> dict[int, dict[int, Running | None]]:
        """What runs in these seats right now, by worker and seat."""
        found: dict[int, dict[int, Running | None]] = {}
        for number, taken in seats.items():
            child = self._children.get(number)
            if child is not None and child.slot is not None:
                found[number] = {seat: child.slot.seat(seat).read() for seat in taken}
        return found

    def still(self, signal: Signal) -> bool:
        """Whether what a signal is about still runs, as far as can be told."""
        slot = self._children[signal.worker].slot
        if signal.meant is None or slot is None:
            return True
        return (slot if signal.seat is None else slot.seat(signal.seat)).read() == signal.meant

    def spawn(self, number: int) -> None:
        """Starts a process. Raises OSError where the system can't."""
        settings = {**self._settings, "name": f"worker-{number}"}
        child = self._children[number] = Child("processing.worker", settings, with_slot=True)
        self._selector.register(
            child.channel, selectors.EVENT_READ, lambda mask: self._on_channel(number, mask)
        )
        if child.sentinel is not None:
            self._selector.register(
                child.sentinel, selectors.EVENT_READ, lambda _mask: self._ended(number)
            )

    def send(self, number: int, frame: ToWorker) -> None:
        """Sends a frame; a dead process's is lost: its end says so."""
        channel = self._children[number].channel
        if isinstance(frame, Stop):
            self._expected[number] = "exit code 0"
        try:
            channel.send(frame)
        except ChannelClosed:
            return
        if channel.backlog:
            self._listen(number, selectors.EVENT_READ | selectors.EVENT_WRITE)

    def signal(self, number: int, sent: int) -> None:
        """Sends a signal."""
        self._children[number].signal(sent)

    def reap(self) -> None:
        """Finds ended processes where the system has no descriptor that tells; as PID 1 all."""
        if self._is_init:
            reap_orphans()
        for number, child in list(self._children.items()):
            if child.sentinel is None and child.ended():
                self._ended(number)

    def close(self, timeout: float) -> None:
        """Kills all of them, and what they have started; waits for each, `timeout` seconds."""
        for child in self._children.values():
            child.signal(signal.SIGKILL)
            child.end_group()
            child.wait(timeout)

    def _on_channel(self, number: int, mask: int) -> None:
        child = self._children.get(number)
        if child is None:
            return  # it ended in this very round
        try:
            if mask & selectors.EVENT_WRITE:
                child.channel.flush()
                if not child.channel.backlog:
                    self._listen(number, selectors.EVENT_READ)
            if mask & selectors.EVENT_READ:
                for frame in child.channel.receive():
                    self._heard(number, frame)
        except ChannelClosed:
            self._selector.unregister(child.channel)
        except WrongFrame as error:
            # As where user code has forked, and two processes talk: what it runs is looked up.
            self._log.error("a worker's words make no sense: killing it", worker=number,
                            error=str(error))  # fmt: skip
            self._selector.unregister(child.channel)
            child.signal(signal.SIGKILL)

    def _heard(self, number: int, frame: Frame) -> None:
        if isinstance(frame, CannotServe):
            self._expected[number] = "exit code 1"
        self._on_frame(number, frame)

    def _listen(self, number: int, events: int) -> None:
        channel = self._children[number].channel
        key = self._selector.get_map().get(channel)
        if key is not None:
            self._selector.modify(channel, events, key.data)

    def _ended(self, number: int) -> None:
        child = self._children[number]
        # Everything it sent counts, before its chunks are judged.
        with contextlib.suppress(WrongFrame):
            for frame in child.channel.drain():
                self._heard(number, frame)
        child.end_group()
        child.wait(1.0)
        del self._children[number]
        for registered in (child.channel, child.sentinel):
            if registered is not None and registered in self._selector.get_map():
                self._selector.unregister(registered)
        # Of calls the one that the event loop was in: it has calls, or it has chunks.
        slot = child.slot
        running = None if slot is None else slot.read() or slot.stage.read()
        child.close()
        expected = self._expected.pop(number, None) == child.cause or child.was_ended_here
        log = self._log.info if expected else self._log.warning
        log("worker ended", worker=number, cause=child.cause)
        self._on_end(number, child.cause, running)
