"""Deadlines of running requests, as the progress slots show them: SIGTERM, SIGKILL, recalls. Pure.

A deadline that passed is SIGTERM, and SIGKILL where that does not help; so is a cancellation, but
that a frame says which request is meant, as its deadline does not. Whatever takes its time has what
waits behind it called back.
"""

from __future__ import annotations

import signal
from typing import Final

from feedback.contract.states import CANCELLED, SHUTDOWN, TIMEOUT
from processing.ipc.frames import Cancel, Recall
from processing.ipc.progress import Running
from processing.pool.actions import Action, Send, Signal
from processing.pool.terminated import Terminated
from processing.pool.worker_state import Worker

RECALL_AFTER: Final = 0.2
"""Seconds a request may run before what waits behind it in the same worker is called back."""


def overdue(worker: Worker, running: Running, now: float, kill_gap: float) -> list[Action]:
    """What the deadline of a running request asks for; `kill_gap`: seconds until SIGKILL."""
    told = worker.terminated
    if told is not None:
        if told.running != running:
            worker.terminated = None
        elif now - told.at >= kill_gap:
            worker.terminated = told._replace(killed=True)
            return [
                Signal(worker.number, signal.SIGKILL, told.why, again=told.killed, meant=running)
            ]
        return []
    if running.deadline is not None and now >= running.deadline:
        worker.terminated = Terminated(running, now, TIMEOUT)
        return [Signal(worker.number, signal.SIGTERM, TIMEOUT)]
    return []


def cancel(worker: Worker, running: Running, reason: str, now: float) -> list[Action]:
    """What runs shall end and not run again; nothing where it was asked to end already."""
    told = worker.terminated
    if running.index is None or (told is not None and told.running == running):
        return []
    worker.terminated = Terminated(running, now, CANCELLED, reason)
    return [Send(worker.number, Cancel(running.chunk, running.index, reason))]


def note_terminated(worker: Worker, running: Running | None, now: float) -> None:
    """Notes that what runs was asked to give up because the service ends.

    Of one that is alone in its worker, the look-up before and the COMMIT after its handler, too.
    """
    if running is None and len(worker.chunks) == 1 and len(worker.chunks[0].records) == 1:
        running = Running(worker.chunks[0].number, None, None, now)
    told = worker.terminated
    if running is not None and (told is None or told.running != running):
        worker.terminated = Terminated(running, now, SHUTDOWN)


def recall(worker: Worker, running: Running, now: float) -> list[Action]:
    """A request that takes its time holds up nothing that could run elsewhere."""
    waiting = len(worker.chunks) > 1 or (worker.chunks and len(worker.chunks[0].records) > 1)
    late = now - running.started > RECALL_AFTER
    if not waiting or not late or worker.recalled == running.chunk:
        return []
    worker.recalled = running.chunk
    return [Send(worker.number, Recall())]
