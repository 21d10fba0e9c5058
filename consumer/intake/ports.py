"""What the loop and the service need of their neighbours; tests give fakes that follow this."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from consumer.intake.events import Answered, Assigned, BeforeRevoke, Event, Found, Place
from consumer.intake.offset_metadata import LowMark
from feedback.contract.record import Record
from processing.ipc.frames import MaintenanceReady, ToMaintenance
from processing.pool.backlog import Backlog
from processing.pool.stats import PoolStats


class KafkaClient(Protocol):
    """What the loop needs of Kafka."""

    before_revoke: BeforeRevoke
    """Called inside `poll`, before partitions are let go: never of the client again."""

    @property
    def member(self) -> bool:
        """Whether the group counts this process as a member, with or without partitions."""

    @property
    def missing_topics(self) -> tuple[str, ...] | None:
        """Configured topics that do not exist; None as long as that is not known."""

    def subscribe(self) -> None:
        """Joins the group; after it was left as another member."""

    def unsubscribe(self) -> None:
        """Leaves the group; polls bring the revocations."""

    def poll(self, most: int, timeout: float) -> list[Event]:
        """What happened within `timeout` seconds: at most `most` records, and everything else."""

    def commit(
        self, offsets: Mapping[Place, int], metadata: str, marks: Mapping[Place, LowMark]
    ) -> Answered | None:
        """Sends a commit (see `SendCommit`).

        Its answer comes with a poll, or at once where it could not be sent.
        """

    def find_starts(self, places: Sequence[Place], timeout: float) -> Assigned:
        """Asks once more where to begin in partitions that are ours, and goes there.

        They stay paused. Blocks for `timeout` seconds at most for each question.
        """

    def committed(self, places: Sequence[Place], timeout: float) -> Found:
        """The group's committed offsets, without those that could not be read."""

    def pause(self, places: Iterable[Place], *, paused: bool) -> None:
        """Stops or resumes fetching of partitions that are ours."""

    @property
    def brokers_away_for(self) -> float | None:
        """Seconds in which all were down and none was heard; None: they are not known to be."""

    def lag(self) -> dict[str, int]:
        """Topic -> messages of our partitions that are not taken yet. Never waits for a broker.

        Nothing while that can't be known, as the brokers are away.
        """

    def close(self) -> None:
        """Leaves the group and lets go of everything. May hang while brokers are away."""


class WorkerPool(Protocol):
    """What the loop needs of the supervisor."""

    @property
    def in_hand(self) -> int:
        """Requests that are committed and not finished."""

    @property
    def in_hand_bytes(self) -> int:
        """The same in bytes."""

    @property
    def pending(self) -> bool:
        """Records wait for a worker."""

    @property
    def saturated(self) -> bool:
        """Nothing that comes could start before a worker reports, which ends a `step`."""

    @property
    def supplied(self) -> bool:
        """Each worker has its next chunk already, so what comes goes behind that."""

    @property
    def held_back(self) -> int:
        """Records that can't just share the next chunk."""

    @property
    def kept_back(self) -> int:
        """Records in hand that are tried again after a pause, and what waits behind them.

        Dead workers' database sessions do not end, the database refuses look-ups, or others may be
        at them yet.
        """

    def backlogs(self) -> Mapping[Place, Backlog]:
        """What is held back by partition, and how long that is expected to take. Looks at each."""

    @property
    def database_up(self) -> bool:
        """Whether requests can be journaled."""

    @property
    def workers_start(self) -> bool:
        """False while nobody is there and the last worker that was started failed."""

    def submit(self, records: Sequence[Record], size: int) -> None:
        """Takes records whose offsets are committed, each partition's in order; bytes of them."""

    def take_departed(self) -> tuple[list[Record], list[Record]]:
        """What is done or answered for, and what was given up, since it was asked last."""

    def let_go(self, places: Mapping[Place, int]) -> None:
        """From now on what has not started of these partitions is given up; none: no more.

        From which offset of each on.
        """

    @property
    def letting_go(self) -> bool:
        """Whether workers have records of the partitions that are let go."""

    def step(self, timeout: float) -> None:
        """Takes what has arrived within `timeout` seconds, then acts on it."""


class MaintenancePort(Protocol):
    """What the service needs of the maintenance process."""

    @property
    def ready(self) -> MaintenanceReady | None:
        """What it said of the database's schema, once it has."""

    def send(self, frame: ToMaintenance) -> bool:
        """Tells it something; False: it is away."""


class ServicePool(WorkerPool, Protocol):
    """What the service needs of the supervisor, besides what the loop does."""

    fatal: str | None
    killed: int

    @property
    def maintenance(self) -> MaintenancePort:
        """The maintenance process's link."""

    @property
    def types(self) -> list[str]:
        """Request types of the app."""

    @property
    def alive(self) -> int:
        """Worker processes that have not ended."""

    def stats(self) -> PoolStats:
        """A frozen look at the pool."""

    def running_requests(self) -> list[dict[str, Any]]:
        """What each worker runs right now: request_id, type, record, worker, since."""

    def add_reader(self, descriptor: int, callback: Callable[[], None]) -> None:
        """Calls `callback` from `step` whenever a descriptor is readable."""

    def start_maintenance(self) -> None:
        """Starts the maintenance process."""

    def start_workers(self) -> None:
        """Starts the workers in the steps that follow."""

    def stop_claims(self) -> None:
        """From now on no rows of the waiting queue are claimed."""

    def refuse_unstarted(self, code: str) -> None:
        """From now on what has not started waits for another instance; workers end.

        Where the journal can't be written it is answered `failed/<code>`.
        """

    def terminate(self) -> None:
        """Asks what still runs to give up."""

    def kill(self, why: str) -> None:
        """Kills what is left."""

    def give_up(self) -> list[dict[str, Any]]:
        """Nothing more will be done: names some of what is in hand."""

    def close(self, timeout: float) -> None:
        """Ends the maintenance process; kills workers that are left."""
