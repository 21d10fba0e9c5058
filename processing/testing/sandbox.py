"""Producer and handlers together in memory, for tests: no Kafka, no PostgreSQL, no Redis.

    from processing.testing import Sandbox

    def test_a_payment_is_made_once() -> None:
        with Sandbox(app) as sandbox:
            sandbox.lose("payment.create")
            assert sandbox.client.call("payment.create", {"amount": 5}).state == "done"

The executor and the client are the real ones; topic, journal and statuses are dicts. Everything
runs in the test's own thread: requests run in `run()`, `advance()` and while the client waits, and
time stands still in between.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NoReturn, Self

from feedback.contract.record import Record, claim_of, is_due
from feedback.contract.states import MOST_CRASHES, WORKER_DIED
from feedback.status.memory_store import MemoryStatusStore
from feedback.status.status import Status, StatusWrite
from processing.handlers.app import App
from processing.ipc.frames import ASK, Report, Suspect
from processing.logs import get_logger
from processing.pool.worker_deaths import suspect_again
from processing.settings import ExecutorSettings
from processing.testing.answers import Answers
from processing.testing.given import KitError
from processing.testing.handler_cursor import CursorOfTest
from processing.testing.memory_access import MemoryCoalescing, MemoryWriter
from processing.testing.memory_journal import INSTANCE, MemoryJournal, Row
from processing.testing.memory_session import MemoryOutages, MemorySession
from processing.testing.movable_clock import MovableClock
from processing.testing.planned_faults import OfWhat, PlannedFaults, Point
from processing.testing.sandbox_client import SandboxClient
from processing.worker.chunk_run import ChunkRun
from processing.worker.executor import Executor, JournalAccess
from processing.worker.task import Task

MOST_RUNS: Final = 100_000
"""Records that one call runs at most: what asks for itself again without a pause never ends."""
_log = get_logger("oncepool.sandbox")
_open: list[Sandbox] = []


class WorkerKilled(BaseException):
    """Takes a killed worker out of its handler."""


def kill_worker(*_: Any, **__: Any) -> NoReturn:
    """The worker that runs this dies here, as of a SIGKILL; to be called by a handler, or a mock.

    What it had done in its transaction is undone; what it did elsewhere is done. Its request runs
    again, as in an instance, after a look into the journal: twice killed it is dead, and a call
    outside is in doubt.
    """
    for sandbox in reversed(_open):
        if sandbox.runs:
            sandbox.journal.kill()
            raise WorkerKilled
    raise KitError("kill_worker() kills the worker of a Sandbox, and none runs anything")


class Sandbox:
    """An app with a producer, for `with`.

    `resources` stand in for what the start hooks give. `tx` is what handlers get that take one: a
    connection or cursor of psycopg, in a transaction of the test's own, or a FakeCursor, which is
    what they get where none is given. `start` (aware) is when time begins; else it is now.
    """

    def __init__(
        self,
        app: App,
        resources: Mapping[str, Any] | None = None,
        *,
        tx: Any = None,
        start: datetime | None = None,
    ) -> None:
        self._app = app
        self._resources = resources
        self.clock = MovableClock(start)
        self.journal = MemoryJournal()
        self.statuses = MemoryStatusStore(time.time)
        self.client = SandboxClient(self)
        cursor = CursorOfTest(tx)
        self._session = MemorySession(self.journal, cursor, self._committing)
        self._executor: Executor | None = None
        self._topic: deque[Record] = deque()
        self._offset = self._chunks = 0
        self._checked = {name for name, handler in app.handlers.items() if handler.check}
        self._running: Record | None = None
        self._faults = PlannedFaults(app.handlers)
        self._answers = Answers(self.statuses, self._faults)

    def __enter__(self) -> Self:
        self._app.start_worker(self._resources)
        self.clock.start()
        _open.append(self)
        session = self._session
        outages = MemoryOutages(session, "", _log)
        rows, coalescing = MemoryWriter(self.journal), MemoryCoalescing(self.journal)
        self._executor = Executor(
            app=self._app, database_url="", publish=self.publish, connected=lambda _: None,
            settings=ExecutorSettings(instance=INSTANCE), log=_log,
            journal=JournalAccess(session, outages, rows, coalescing),
        )  # fmt: skip
        self.journal.tick(self._app.schedules, self.clock.now())
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        _open.remove(self)
        self.clock.stop()
        self._app.stop_worker()
        if left := self._faults.left():
            if error is None:
                raise KitError(left)
            error.add_note(left)

    # Time and work

    @property
    def runs(self) -> bool:
        """Whether its worker is at something: this is asked from within."""
        return self._running is not None

    def run(self) -> int:
        """Runs what has arrived and what is due now; how many records that were."""
        done = 0
        while (found := self._next()) is not None:
            done += 1
            if done > MOST_RUNS:
                raise KitError(f"after {MOST_RUNS} runs there is still something due")
            self._run(*found)
        return done

    def advance(self, seconds: float) -> int:
        """Lets time pass, and runs what becomes due on the way; how many records that were."""
        end = self.clock.after(seconds)
        done = self.run()
        while (due := self._due()) is not None and due <= end:
            self.clock.move(max(0.0, due - self.clock.time()))
            done += self.run()
        self.clock.move(max(0.0, end - self.clock.time()))
        return done + self.run()

    def pass_time(self, most: float) -> None:
        """As `advance`, but only until something has run."""
        due, now = self._due(), self.clock.time()
        step = most if due is None else min(most, max(0.0, due - now))
        self.clock.move(step)
        self.run()

    # What became of requests

    def status(self, request_id: str) -> Status | None:
        """What its producer reads, once all has run that is due."""
        self.run()
        return self.client.status(request_id)

    def request(self, request_id: str) -> Row | None:
        """Its row of the journal, by column, as docs/waiting.md names them; None without one."""
        row = self.journal.rows.get(request_id)
        return None if row is None else dict(row)

    def requests(self, state: str | None = None) -> list[Row]:
        """All rows, or those of a state, in the order in which they came."""
        rows = self.journal.rows.values()
        return [dict(row) for row in rows if state is None or row["state"] == state]

    @property
    def attempts(self) -> list[Row]:
        """Runs that did not succeed, in their order."""
        return list(self.journal.attempts)

    @property
    def dead_letters(self) -> list[Row]:
        """Messages that could not become a request, or conflict with a stored one."""
        return list(self.journal.letters)

    # Faults

    def lose(self, of: OfWhat = None, times: int = 1) -> None:
        """The next messages, of that type or id, are lost: taken and never run."""
        self._faults.plan("lose", of, times)

    def deliver_twice(self, of: OfWhat = None, times: int = 1) -> None:
        """The next messages, of that type or id, are there twice, as if they were sent again."""
        self._faults.plan("deliver_twice", of, times)

    def answer_twice(self, of: OfWhat = None, times: int = 1) -> None:
        """The next answers come twice, and once more after what is told of the request next."""
        self._faults.plan("answer_twice", of, times)

    def kill_at(self, point: Point, of: OfWhat = None, times: int = 1) -> None:
        """The worker dies when it is about to commit, or has committed and told nobody yet.

        The next times that it runs something of that type or id; `kill_worker()` is for anywhere
        in a handler.
        """
        self._faults.plan_kill(point, of, times)

    def clear_faults(self) -> None:
        """Those that are planned and have not struck are not to: the end does not tell of them."""
        self._faults.clear()

    @contextlib.contextmanager
    def redis_away(self) -> Iterator[None]:
        """No status can be written or read meanwhile."""
        self.statuses.available = False
        try:
            yield
        finally:
            self.statuses.available = True

    def send_raw(
        self,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        *,
        key: bytes | None = None,
        topic: str = "sandbox",
    ) -> None:
        """A message as any program may send it: of another format, or of none."""
        self._arrive(topic, self.clock.time(), key, value, list(headers))

    # Called by its parts

    def take(self, message: Any) -> None:
        """A message of the client's."""
        seconds = message.timestamp / 1000
        self._arrive(message.topic, seconds, message.key, message.value, list(message.headers))

    def publish(self, writes: Sequence[StatusWrite]) -> None:
        """Statuses, of a worker that lives."""
        if not self.journal.dead:
            self._answers.write(writes, self._running)

    def _arrive(
        self, topic: str, seconds: float, key: bytes | None, value: bytes | None, headers: Any
    ) -> None:
        kind = dict(headers).get("ce_type")
        self._offset += 1
        record: Record = (
            topic, 0, self._offset, int(seconds * 1000), key, value, headers,
            None if kind is None else kind.decode("utf-8", "replace"), None,
        )  # fmt: skip
        if self._faults.strikes("lose", record):
            return
        self._topic.append(record)
        if self._faults.strikes("deliver_twice", record):
            self._offset += 1
            self._topic.append((*record[:2], self._offset, *record[3:]))

    def _next(self) -> tuple[Record, Suspect | None] | None:
        if self._topic:
            return self._topic.popleft(), None
        now = self.clock.now()
        self.journal.tick(self._app.schedules, now)
        if (record := self.journal.claim_next(now)) is not None:
            return record, None
        if (record := self.journal.ask_next(self._checked, now)) is not None:
            return record, Suspect(ASK, (), ())
        return None

    def _due(self) -> float | None:
        if self._topic:
            return self.clock.time()
        ticks = self.journal.next_tick(self._app.schedules, self.clock.now())
        asked = self.journal.asked_at(self._checked)
        times = [at for at in (self.journal.due_at(), asked, ticks) if at is not None]
        return min(times).timestamp() if times else None

    def _run(self, record: Record, suspect: Suspect | None) -> None:
        """Runs a record as an instance does: again, as a suspect, where its worker dies."""
        while True:
            begun = time.monotonic()
            token, report = self._execute(record, suspect)
            if not self.journal.dead:
                break
            self.journal.dead = False
            again = suspect is not None and suspect.crashes + 1 >= MOST_CRASHES
            suspect = suspect_again(
                suspect, (), token, verdict=WORKER_DIED if again else None,
                loss=(begun, time.monotonic(), "killed by a test"),
            )  # fmt: skip
        if report.returned or report.unclear:
            if is_due(record):
                self.journal.release(claim_of(record)[0], self.clock.now())
            else:
                self._topic.append(record)

    def _execute(self, record: Record, suspect: Suspect | None) -> tuple[str, Report]:
        if self._executor is None:
            raise KitError("the sandbox is not open: use it in a with block")
        self._chunks += 1
        self._running = record
        token = f"{INSTANCE}-chunk-{self._chunks}"
        try:
            chunk = _Chunk(self._chunks, token, record, suspect, self.journal)
            report = self._executor.begin(chunk)
        finally:
            self._running = None
        if report is None:
            raise AssertionError("a call goes on by itself, and nobody is here to end it")
        return token, report

    def _committing(self, point: str) -> None:
        if self._running is not None and self._faults.strikes(point, self._running):
            self.journal.kill()


class _Chunk(ChunkRun):
    """A record on its way: from the death of its worker on, nothing of it goes on."""

    def __init__(
        self, number: int, token: str, record: Record, suspect: Suspect | None,
        journal: MemoryJournal,
    ) -> None:  # fmt: skip
        super().__init__(number, token, [record], suspect, _Gate())
        self._journal = journal

    def start(self, index: int, timeout: float | None) -> bool:
        return not self._journal.dead and super().start(index, timeout)

    def settle(self, tasks: Iterable[Task]) -> None:
        if self._journal.dead:
            self.settled.update(task.index for task in tasks)
        else:
            super().settle(tasks)


class _Gate:
    """What a chunk shares with the rest of its worker: here there is no rest."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def show(self, chunk: int, index: int | None, timeout: float | None, now: float) -> None:
        """Nobody looks."""

    def clear(self) -> None:
        """Nobody looks."""
