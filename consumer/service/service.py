"""One instance from start to end: start order, signals, shutdown order, exit code.

Start: handlers of signals, the maintenance process (it looks at the database), workers (they import
the app), and only then the group: nothing is committed before somebody can run it.

End: stop intake, settle the open commit, leave the group (others take its partitions at once),
drain; at 90 % of the grace what has not started is parked in the waiting queue for another instance
and workers are asked to give up; at its end they are killed. See `Shutdown`.
"""

from __future__ import annotations

import gc
import sys
import time
from collections import Counter
from collections.abc import Callable

from consumer.config.settings import Settings
from consumer.intake.flow_control import FlowControl
from consumer.intake.kafka import Kafka
from consumer.intake.loop import Loop
from consumer.intake.ports import KafkaClient, ServicePool
from consumer.service.facts import facts
from consumer.service.shutdown import Phase, Shutdown
from consumer.service.signal_pipe import Signals
from consumer.service.watchdog import Watchdog
from feedback.contract.counts import AT_COMMIT, NotRun
from feedback.metrics.exposition import shown
from processing.ipc.frames import Counts, Heartbeat
from processing.ipc.service_manager import ServiceManager
from processing.ipc.standard_streams import exit_at_once, say_at_once
from processing.logs import BoundLogger, get_logger, writes_json

EXIT_CLEAN, EXIT_FATAL, EXIT_KILLED = 0, 1, 3
START_WAIT = 0.1
BEAT_EVERY = 1.0
MAINTENANCE_CLOSE = 5.0
"""Seconds that the maintenance process may take to end, once it has answered what it was given."""
AFTER_KILL = 2.0
"""Seconds beyond the grace for killed processes to be gone and the rest to be put away."""
LEAVING = 1.0
"""Seconds beyond the grace for the group to be left, which may have begun shortly before."""
LAST_WORD = 1.0
"""Seconds that a reader of standard error has to take why the service ends."""
STUCK_AFTER = AFTER_KILL + MAINTENANCE_CLOSE + 3.0
"""Seconds beyond the grace after which the watchdog ends the process."""
COLLECT_AFTER = 10_000
"""New objects after which Python looks for garbage, beyond those that are gone again: by default
700 are enough, so each poll had it visit all that had come."""


class Service:
    """Runs one instance."""

    def __init__(
        self,
        settings: Settings,
        instance: str,
        pool: ServicePool,
        kafka: KafkaClient,
        signals: Signals,
        log: BoundLogger,
        *,
        loop: type[Loop] = Loop,
    ) -> None:
        """`loop`: a test may give one that tells more."""
        self._pool = pool
        self._kafka = kafka
        self._metrics = shown(settings.health_port)
        self._group = settings.kafka_group
        self._signals = signals
        self._log = log
        flow = FlowControl(settings.max_in_hand, int(settings.max_in_hand_bytes))
        self._loop = loop(
            kafka, pool, flow, instance, get_logger("oncepool.loop"),
            read_again=settings.read_again,
        )  # fmt: skip
        self._grace = settings.grace
        self._shutdown = Shutdown(settings.grace)
        self._manager = ServiceManager()
        self._done = Phase.RUNNING
        """The last phase whose work was done."""
        self._workers_told = False
        self._hurried = False
        """A signal beyond the first has moved the shutdown on."""
        self._json_logs = settings.log_format == "json"
        """Asked for: nothing else is to be said then."""
        self._read_by_programs = writes_json(settings.log_format, sys.stderr)
        self._fatal: str | None = None
        self._next_beat = 0.0
        self._lost: Counter[str] = Counter()
        """Records lost at their commit that the maintenance process has counted."""
        # A signal wakes a wait for workers at once, and a wait for messages ends within 0.1 s.
        pool.add_reader(signals.fileno(), self._on_signal)

    def run(self) -> int:
        """Runs until a signal or a fatal error; returns the exit code."""
        watchdog = Watchdog(
            self._stuck_at,
            lambda: self._code(killed=True),
            self._signals.fileno(),
            self._grace + STUCK_AFTER,
        )
        try:
            if self._start():
                self._serve()
        except Exception as error:  # noqa: BLE001 - what is in hand is drained after a bug, too
            self._broke(error)
        self._drain()
        code = self._close()
        watchdog.dismiss()
        if self._fatal and not self._json_logs:
            # The last that is said, whole.
            *details, cause = self._fatal.splitlines()
            say_at_once("\n".join([*details, f"oncepool: {cause}"]), LAST_WORD)
        return code

    @property
    def counts(self) -> dict[str, int]:
        """Records and commits by outcome."""
        return self._loop.stats().counts

    # Start

    def _start(self) -> bool:
        """Starts everything; False when it is to end before it has begun."""
        self._pool.start_maintenance()
        if not self._until(lambda: self._pool.maintenance.ready is not None):
            return False
        found = self._pool.maintenance.ready
        if found is not None and found.unusable:
            self._fatal = found.unusable.reason
            return False
        if found is not None and not found.ok:
            self._log.error(
                "database away: the group is joined once it answers", detail=found.detail
            )
        self._pool.start_workers()
        if not self._until(lambda: not self._pool.database_up or self._pool.stats().workers > 0):
            return False
        self._manager.ready("running" if self._pool.database_up else "waiting for the database")
        # An instance that has never reached its database must not take partitions from others,
        # which may reach theirs.
        if not self._until(lambda: self._pool.database_up and self._pool.stats().workers > 0):
            return False
        self._loop.start()
        return True

    def _until(self, ready: Callable[[], bool]) -> bool:
        """Steps the pool until something is ready; False on a signal or a fatal error."""
        while not ready():
            self._pool.step(START_WAIT)
            self._on_signal()
            self._tell()
            if self._phase is not Phase.RUNNING or self._fatal or self._pool.fatal:
                return False
        return True

    # Run

    def _serve(self) -> None:
        self._manager.ready("running")
        self._log.info("running")
        while self._phase is Phase.RUNNING and not (self._loop.fatal or self._pool.fatal):
            self._turn()

    def _turn(self) -> None:
        self._loop.turn()
        self._on_signal()
        self._tell()

    @property
    def _phase(self) -> Phase:
        return self._shutdown.phase(time.monotonic())

    def _on_signal(self) -> None:
        for name in self._signals.take():
            if name == "SIGHUP" and self._phase is not Phase.RUNNING:
                continue  # a closed terminal sends it twice: it asks for the end, not for haste
            phase = self._shutdown.signal(time.monotonic())
            self._hurried = phase > Phase.DRAINING
            self._log.info("signal", signal=name, phase=phase.name.lower())

    def _tell(self) -> None:
        """Tells the maintenance process, which shows it, that this process turns."""
        now = time.monotonic()
        if now < self._next_beat:
            return
        self._next_beat = now + BEAT_EVERY
        self._manager.alive()
        told = facts(self._loop.stats(), self._pool)
        stopping = self._phase is not Phase.RUNNING
        told |= {"group": self._group, "stopping": stopping, "lag": self._lag()}
        told["brokers_away_for"] = self._kafka.brokers_away_for
        self._pool.maintenance.send(Heartbeat(told))
        self._count_lost()

    def _count_lost(self) -> None:
        lost = Counter(self._loop.stats().lost)
        if new := lost - self._lost:
            counts = {(kind, NotRun.LOST.value, AT_COMMIT): n for kind, n in new.items()}
            if self._pool.maintenance.send(Counts(counts)):  # else with what comes next
                self._lost = lost

    def _lag(self) -> dict[str, int]:
        """By topic, for metrics; the client is another thread's once the group is being left."""
        return self._kafka.lag() if self._metrics and not self._loop.leaving else {}

    # End

    def _drain(self) -> None:
        """Goes through the phases until nothing is left, or nothing more may be waited for."""
        self._note(self._fatal or self._pool.fatal or self._loop.fatal)
        if self._phase is Phase.RUNNING:
            self._shutdown.signal(time.monotonic())
        if self._pool.fatal and not self._pool.stats().workers:
            # Nobody can run what is in hand.
            self._shutdown.signal(time.monotonic())
        self._manager.stopping("draining")
        self._loop.stop_intake()
        self._pool.stop_claims()
        self._log.info("draining", in_hand=self._pool.in_hand, seconds=round(self._left(), 1))
        while not self._empty():
            try:
                self._follow(self._phase)
                self._turn()
                if self._fatal is None:
                    # Once the group is being left no commit is open that could fail.
                    kafka = None if self._loop.leaving else self._loop.fatal
                    self._note(self._pool.fatal or kafka)
            except Exception as error:  # noqa: BLE001 - as above
                self._broke(error)
                # Whatever is wrong with the rest: what runs may come to its end.
                self._pool.step(START_WAIT)
                self._on_signal()

    def _note(self, fatal: str | None) -> None:
        """The end has a reason, if this is one: it is told, and the exit code says so."""
        if fatal:
            self._fatal = fatal
            self._log.error("ending", **self._why())

    def _why(self) -> dict[str, str]:
        """What the line "ending" says of the reason: nothing where that is about to be printed.

        Programs read it in that line; its details as well where nothing is printed.
        """
        *details, reason = (self._fatal or "").splitlines()
        if self._json_logs and details:
            return {"reason": reason, "details": "\n".join(details)}
        return {"reason": reason} if self._read_by_programs or self._pool.in_hand else {}

    def _broke(self, error: Exception) -> None:
        """Nobody foresaw this: a bug, or a system that is out of threads or memory."""
        if self._fatal is None:
            self._log.exception("unexpected error")
            self._fatal = f"unexpected error: {error!r}"

    def _follow(self, phase: Phase) -> None:
        if phase >= Phase.TERMINATING:
            # Not before: what the open commit confirms in time is parked, or answered.
            self._loop.abandon()
        if self._loop.settled and not self._loop.leaving:
            self._loop.leave()
        # What waits for a dead worker's session may do so for hours: the next owner has it, too.
        drained = self._loop.settled and self._pool.in_hand <= self._pool.kept_back
        if (drained or phase >= Phase.REFUSING) and not self._workers_told:
            self._workers_told = True
            self._pool.refuse_unstarted("shutdown")
        if phase >= Phase.TERMINATING > self._done:
            self._log.warning("asking what still runs to give up", in_hand=self._pool.in_hand)
            self._pool.terminate()
        if phase >= Phase.KILLING > self._done:
            self._pool.kill("a further signal came" if self._hurried else "the grace is over")
        self._done = phase

    def _empty(self) -> bool:
        if self._done is Phase.KILLING and self._left() < -AFTER_KILL:
            return True
        gone = self._done is not Phase.RUNNING and not self._pool.alive and self._loop.leaving
        # What was killed is put away, too, but for what waits for a dead worker's session.
        return gone and self._pool.in_hand <= self._pool.kept_back

    def _left(self) -> float:
        """Seconds until the end of the grace."""
        end = self._shutdown.end
        return float("inf") if end is None else end - time.monotonic()

    def _stuck_at(self) -> float:
        return time.monotonic() + self._left() + STUCK_AFTER

    def _close(self) -> int:
        self._count_lost()
        self._pool.close(MAINTENANCE_CLOSE)
        while not self._loop.left and self._left() > -LEAVING:
            time.sleep(0.01)
        if self.stuck:
            cause = (
                "the brokers do not answer" if self._loop.leaving else "no thread could be started"
            )
            self._log.error(f"the group could not be left in time: {cause}")
        left = self._pool.in_hand
        if left:
            self._log.error(
                "requests left in hand: nobody has answered for them",
                in_hand=left,
                first=self._pool.give_up(),
            )
        code = self._code(killed=self.stuck or self._pool.killed > 0 or left > 0)
        self._log.info("ended", code=code, counts=self.counts)
        return code

    @property
    def stuck(self) -> bool:
        """The group was not left: a thread still waits for brokers."""
        return not self._loop.left

    def _code(self, *, killed: bool) -> int:
        if self._fatal:
            return EXIT_FATAL
        return EXIT_KILLED if killed else EXIT_CLEAN


def run_service(settings: Settings) -> int:
    """Runs the consumer with these settings until it ends; returns the exit code.

    Raises ConsumerError where the Kafka client refuses its properties.
    """
    signals = Signals()
    # Here, as a test of the service brings a pool of its own.
    from consumer.service.wiring import instance_id, make_pool

    instance = instance_id()
    log = get_logger("oncepool.service", instance=instance)
    kafka = Kafka(settings, get_logger("oncepool.kafka"))
    service = Service(settings, instance, make_pool(settings, instance), kafka, signals, log)
    gc.freeze()  # it is there until the end: full collections need not visit it
    gc.set_threshold(COLLECT_AFTER)
    code = service.run()
    # Python gives them back their defaults as it ends: a late one would replace the exit code.
    signals.ignore()
    if service.stuck:
        # A client that still waits for its brokers would keep the process.
        exit_at_once(code)
    return code
