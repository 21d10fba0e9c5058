"""A worker process: runs the chunks that the main process sends, one after the other.

    python -m processing.worker PARENT_PID SOCKET SLOT

What it is told and says stands in `processing.ipc.frames`: `ToWorker`, `FromWorker`.
"""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # until the app is loaded: imports leave no garbage, and take a tenth longer

import os
import resource
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import processing.lean_redis  # noqa: F401 - the first to load it
from feedback.contract.states import SHUTDOWN, TIMEOUT
from feedback.status.opening import open_store
from feedback.status.sender import StatusSender
from feedback.tracing.switch import TRACING
from processing.handlers.app import App, load_app
from processing.handlers.awaiting import interrupt_waiting
from processing.handlers.start_failure import explain
from processing.handlers.stopping import STOPPING
from processing.ipc.channel import BlockingChannel, ChannelClosed
from processing.ipc.frames import CannotServe, Configure, Report, ScheduleFields, WorkerReady
from processing.ipc.parent_watch import EXIT_ORPHANED, tie_to_parent
from processing.ipc.progress import ProgressSlot
from processing.ipc.standard_streams import exit_at_once
from processing.logs import configure, get_logger
from processing.settings import ExecutorSettings, WorkerSettings
from processing.worker.chunk_run import ChunkRun
from processing.worker.executor import Executor
from processing.worker.forks import FORK_GUARD
from processing.worker.garbage import room_for
from processing.worker.inbox import Inbox
from processing.worker.journal_uses import uses_of
from processing.worker.seated_run import SeatedRun
from processing.worker.traced_runs import TracedRuns

if TYPE_CHECKING:
    from processing.worker.open_calls import OpenCalls

STATM = Path("/proc/self/statm")
PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
EXIT_NO_MEMORY = 87
FLUSH_AT_EXIT = 2.0
"""Seconds that statuses not yet sent to Redis may take at the end; spans have as many."""
CATCH_UP = 0.1
"""Seconds that they may hold up a request that goes alone."""


def main() -> None:
    """Runs until the main process says stop or is gone."""
    parent, sock, slot = map(int, sys.argv[1:4])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the group; the main process acts
    tie_to_parent(parent)
    channel = BlockingChannel(socket.socket(fileno=sock))
    try:
        frame = channel.receive()
        if not isinstance(frame, Configure):
            raise TypeError(f"the first frame says how to run, not {frame!r}")
        code = _Worker(channel, ProgressSlot.open(slot), WorkerSettings(**frame.settings)).serve()
    except ChannelClosed:
        code = EXIT_ORPHANED
    except MemoryError:
        # Nothing was said of what it could not read or write: others have it, one by one.
        traceback.print_exc()
        code = EXIT_NO_MEMORY
    # Not sys.exit: threads that user code left behind must not keep a stopped worker alive.
    exit_at_once(code)


class _Worker:
    def __init__(
        self, channel: BlockingChannel, slot: ProgressSlot, settings: WorkerSettings
    ) -> None:
        self._channel = channel
        self._slot = slot
        self._settings = settings
        self._requests = 0
        self._dropped = 0
        """Statuses that were dropped, as far as the main process was told."""
        self._runs: TracedRuns | None = None
        self._logging = configure(**settings.log, process=settings.name)
        self._log = get_logger("oncepool.worker")

    def serve(self) -> int:
        """Loads the app, then runs chunks until told to stop. Returns the exit code."""
        try:
            app = self._load()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - user code: whatever it raises is told
            self._channel.send(CannotServe(explain(error)))
            return 1
        settings = self._settings
        sender = StatusSender(open_store(settings.redis_url, settings.redis_prefix))
        inbox = Inbox(self._channel, self._slot)
        inbox.calls = self._open_calls(app, sender, inbox)
        executor = Executor(
            app=app,
            database_url=self._settings.database_url,
            publish=sender.put,
            connected=inbox.connected,
            settings=ExecutorSettings(**self._settings.executor),
            log=self._log,
            runs=self._runs,
        )
        inbox.leases = executor.leases
        signal.signal(signal.SIGTERM, self._on_sigterm(app, inbox))
        FORK_GUARD.watch()
        executor.connect()
        self._channel.send(_ready(app))
        gc.freeze()  # what its hooks made stays, too: the collector need not visit it again
        while (chunk := self._next(executor, inbox)) is not None:
            if len(chunk.records) == 1 and not chunk.seated:
                # It may be the one that kills this process: answers of others must be out by then.
                sender.catch_up(CATCH_UP)
            self._run(executor, inbox, chunk, sender)
        self._leave(app, executor, sender)
        return 0

    @staticmethod
    def _next(executor: Executor, inbox: Inbox) -> ChunkRun | None:
        with executor.leases.unused():
            return inbox.next()

    def _keep_logs(self, *, alone: bool) -> None:
        """After code of the app's, which may have configured logging for programs of its own."""
        if self._logging.restore(alone=alone):
            took = "stands beside that of log_format and log_level"
            if alone:
                took = "was replaced: log_format and log_level say how lines look"
            self._log.info(f"the app's configuration of the root logger {took}")

    def _load(self) -> App:
        if self._settings.memory_limit:
            limit = self._settings.memory_limit
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        TRACING.turn(on=self._settings.tracing)
        if (spans := TRACING.spans()) is not None:
            self._runs = TracedRuns(spans, self._settings.kafka_group)
        app = load_app(self._settings.app)
        self._keep_logs(alone=True)
        gc.freeze()
        gc.enable()
        app.start_worker()
        self._keep_logs(alone=False)  # what a start hook has configured stands
        if spans is not None:
            spans.provide()  # where no hook of the app's has
        return app

    def _open_calls(self, app: App, sender: StatusSender, inbox: Inbox) -> OpenCalls | None:
        """Where calls that go on by themselves are open; None where there are none."""
        if not any(handler.asynchronous for handler in app.handlers.values()):
            return None
        from processing.worker.open_calls import OpenCalls

        return OpenCalls(self._slot.stage, sender.put, inbox.ended, self._runs)

    def _run(self, executor: Executor, inbox: Inbox, chunk: ChunkRun, sender: StatusSender) -> None:
        report: Report | None
        if isinstance(chunk, SeatedRun) and chunk.under_way:
            report = executor.resume(chunk)
        else:
            with room_for(len(chunk.records)):
                report = chunk.finish() if chunk.recalled_whole else executor.begin(chunk)
        if report is None:
            return
        self._requests += chunk.taken
        dropped = sender.dropped
        news, self._dropped = dropped - self._dropped, dropped
        inbox.report(chunk, report._replace(leaving=self._reason_to_leave(), statuses_dropped=news))

    def _reason_to_leave(self) -> str | None:
        """Why this worker should be replaced now, or None."""
        settings = self._settings
        if settings.max_requests and self._requests >= settings.max_requests:
            return f"{self._requests} requests done"
        if settings.max_rss and (rss := resident_bytes()) > settings.max_rss:
            return f"{rss // 2**20} MiB resident"
        return None

    def _on_sigterm(self, app: App, inbox: Inbox) -> Any:
        def handle(_number: int, _frame: FrameType | None) -> None:
            # A signal that comes after its request has ended must not hit the next one.
            running = self._slot.read()
            deadline = None if running is None else running.deadline
            overdue = deadline is not None and time.monotonic() >= deadline
            if inbox.leaving and inbox.calls is not None:
                inbox.calls.stop()
            STOPPING.leaving = inbox.leaving
            if STOPPING.is_set():
                return  # it was told already: whoever sent the signal says so again and again
            cancelled = inbox.cancelled(running)
            if inbox.leaving or overdue or cancelled is not None:
                STOPPING.cancelled = cancelled
                STOPPING.set()
                app.terminate()
                interrupt_waiting(TIMEOUT if overdue else SHUTDOWN)

        return handle

    def _leave(self, app: App, executor: Executor, sender: StatusSender) -> None:
        """Ends in order: the database first, as it holds locks; then statuses; then hooks."""
        executor.close()
        sender.close(FLUSH_AT_EXIT)
        try:
            app.stop_worker()
        except BaseException:  # noqa: BLE001 - user code
            self._log.exception("on_worker_stop failed")
        TRACING.flush(FLUSH_AT_EXIT)


def _ready(app: App) -> WorkerReady:
    most = {name: handler.max_at_once for name, handler in app.handlers.items()}
    limited = {kind: n for kind, n in most.items() if n is not None}
    pure_once = tuple(
        name for name, handler in app.handlers.items()
        if handler.effect == "none" and not handler.redelivery
    )  # fmt: skip
    comparable = {name: not handler.custom_fingerprint for name, handler in app.handlers.items()}
    schedules: tuple[ScheduleFields, ...] = tuple((*one,) for one in app.schedules.values())
    calls = {name: h.concurrency for name, h in app.handlers.items() if h.concurrency is not None}
    checked = tuple(name for name, handler in app.handlers.items() if handler.check is not None)
    return WorkerReady(
        list(most),
        limited,
        list(app.decoders),
        pure_once,
        comparable,
        schedules,
        calls,
        checked,
        uses_of(app),
    )


def resident_bytes() -> int:
    """Resident set of this process in bytes; 0 where /proc is not there."""
    try:
        return int(STATM.read_bytes().split()[1]) * PAGE_SIZE
    except OSError:
        return 0


if __name__ == "__main__":
    main()
