"""A database for tasks of an event loop: a few threads, each with a connection of its own.

Nobody waits for longer than he says, whatever the database does: what is late is given up, and its
connection is cut, so that its thread serves others again.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from consumer.admin.journal import JournalBusy, JournalReadOnly, JournalUnreachable, explained
from consumer.gateway.database_jobs import Job, KeptConnection, Work
from feedback.backoff import Breaker
from feedback.postgres import Connection

T = TypeVar("T")
Connect = Callable[[Callable[[Connection], None]], Connection]
"""Opens a connection, and hands it on before the first statement on it, so that it can be cut."""

MOST_QUEUED: Final = 1_000
_LONGEST_PAUSE: Final = 5.0


class DatabaseThreads:
    """Threads with a connection each, made when there is work, kept while it works."""

    def __init__(
        self,
        setting: str,
        connect: Connect,
        threads: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`setting` is the one that names the database; `connect` raises OncepoolError as well."""
        self._setting = setting
        self._connect = connect
        self._clock = clock
        self._most = threads
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._breaker = Breaker(0.25, _LONGEST_PAUSE)  # guarded by _lock
        self._said = ""  # guarded by _lock: what was wrong at the last try
        self._answered = float("-inf")  # guarded by _lock: when a job was last answered
        self._threads: list[threading.Thread] = []  # guarded by _lock
        self._open = 0  # guarded by _lock: jobs that wait, or that a thread is at
        self._closed = False  # guarded by _lock

    async def run(self, work: Work[T], timeout: float, *, again: bool = False) -> T:
        """What `work` returns, within `timeout` seconds.

        `again`: it does no harm twice, and is tried once more where a connection that was kept
        turns out to be gone; whoever is cancelled takes it along. Raises JournalUnreachable,
        JournalBusy where no thread came to it in time, JournalRefused and what `work` raises.
        """
        job = Job(work, self._clock(), again=again)
        self._take(job)
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.wrap_future(job.answer)
        except TimeoutError:
            if job.withdraw():
                # That others take long says nothing of the database.
                raise JournalBusy(
                    f"others kept all connections to the database for {timeout:g} s, and nothing"
                    " was asked or changed: try again"
                ) from None
            job.hang_up()
            if self._failed(job, f"no answer within {timeout:g} s"):
                raise self._away() from None
            raise JournalUnreachable(
                f"the database of {self._setting} took longer than {timeout:g} s for this, while it"
                " answered others"
            ) from None
        except asyncio.CancelledError:
            if again and not job.withdraw():
                job.hang_up()
            raise

    def close(self) -> None:
        """Ends the threads when they have done what they are at; waits for none."""
        with self._lock:
            self._closed = True
            threads = len(self._threads)
        for _ in range(threads):
            self._jobs.put(None)

    def _take(self, job: Job) -> None:
        with self._lock:
            if self._closed:
                raise JournalUnreachable("this gateway is stopping")
            if self._breaker.pause(self._clock()):
                raise self._away()
            if self._jobs.qsize() >= MOST_QUEUED:
                raise JournalBusy("too many wait for the database already")
            if len(self._threads) < min(self._open + 1, self._most):
                self._start()
            self._jobs.put(job)
            self._open += 1

    def _start(self) -> None:
        """One more thread, where the system has it: others may do, and the next job asks anew."""
        thread = threading.Thread(target=self._serve, name="database", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if not self._threads:
                raise JournalBusy(f"no thread for the database: {error}: try again") from None
        else:
            self._threads.append(thread)

    def _serve(self) -> None:
        kept = KeptConnection()
        while True:
            job = self._jobs.get()
            if job is None:
                break
            # Who has given up is not worked for.
            if job.answer.set_running_or_notify_cancel():
                self._do(job, kept)
            with self._lock:
                self._open -= 1
        kept.close()

    def _do(self, job: Job, kept: KeptConnection) -> None:
        """Does it; the connection stays where it is still of use."""
        try:
            result = self._result(job, kept)
        except BaseException as error:  # noqa: BLE001  (raised where it is awaited)
            job.connection = None
            # Of one that was given up the waiter has said what there is to say.
            away = isinstance(error, JournalUnreachable) and not job.given_up
            if away and kept.connection is None:  # one that ends says only that it has ended
                self._failed(job, str(error))
            if isinstance(error, JournalReadOnly):
                kept.close()  # a new one may lead to the server that has taken over
            job.answer.set_exception(error)
        else:
            job.connection = None
            with self._lock:
                self._breaker.succeeded()
                self._answered = self._clock()
            job.answer.set_result(result)
        if kept.lost:
            kept.close()

    def _result(self, job: Job, kept: KeptConnection) -> Any:
        now = self._clock()
        if not kept.of_use(job, now):
            kept.close()
        stood = kept.connection is not None
        try:
            return self._run_on(kept, job, now)
        except (JournalUnreachable, JournalReadOnly) as error:
            gone = kept.lost or isinstance(error, JournalReadOnly)
            if not stood or not gone or not job.again or job.given_up:
                raise
            job.connection = None
            kept.close()
            return self._run_on(kept, job, self._clock())

    def _run_on(self, kept: KeptConnection, job: Job, now: float) -> Any:
        connection = kept.connection or kept.take(self._opened(job), now)
        with explained(self._setting, connected=True):
            return job.run(connection)

    def _opened(self, job: Job) -> Connection:
        job.check()
        with explained(self._setting):
            return self._connect(job.take)

    def _failed(self, job: Job, said: str) -> bool:
        """A job had no answer; whether that says that the database is away.

        Not where it has answered another one since this one came: that is the job's own trouble.
        """
        with self._lock:
            if self._answered > job.came:
                return False
            # One more within the pause says nothing new. Later it does: while that one was tried,
            # too, nobody was answered.
            if not self._breaker.pause(self._clock()):
                self._breaker.failed(self._clock())
            self._said = said
            return True

    def _away(self) -> JournalUnreachable:
        return JournalUnreachable(
            self._said
            if self._setting in self._said
            else f"the database does not answer; correct {self._setting} or start PostgreSQL:"
            f" {self._said}"
        )
