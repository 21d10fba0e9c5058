"""What is said and done about requests that operators move, whoever asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from datetime import datetime
from typing import NamedTuple, Self

from consumer.admin.cancelling import Cancelled, Withdraw, cancel_running
from consumer.admin.running import running_now
from consumer.admin.statuses import store_of
from consumer.config.settings import Settings
from feedback.contract.states import FINAL, State
from feedback.errors import StoreUnavailable
from feedback.journal.connections import Connection
from feedback.operations.explanations import Refusal
from feedback.operations.request_actions import By, Moved, TransitionOutcome
from feedback.operations.request_reads import Row, matches
from feedback.status.status import Status, StatusWrite
from feedback.status.store import StatusStore

Transition = Callable[[Connection, Sequence[str]], TransitionOutcome]
"""Moves what it is given, on the journal."""

DOUBT = (
    "was ended, and its effect may have happened; find out whether it did, then `oncepool requests"
    " resolve`"
)


class Ending(NamedTuple):
    """How requests that run are ended: within so many seconds."""

    wait: float
    types: Sequence[str] | None = None
    """Only what runs as one of them (`*` stands for anything); None: whatever it is."""


FOLLOWS = (
    "The journal has the change; its status in Redis follows when the request runs, or is answered"
    " to a producer that sends it again"
)


class StatusPublisher:
    """Has statuses follow the journal; says so once where Redis is away, and does without it then.

    The journal is right already, so nothing fails.
    """

    def __init__(
        self,
        settings: Settings,
        warn: Callable[[str], None] = lambda _: None,
        *,
        otherwise: str = FOLLOWS,
    ) -> None:
        """`otherwise` is what to say of statuses that do not follow."""
        self._say = warn
        self._otherwise = otherwise
        self._store = store_of(settings) if settings.redis_url else None
        self._untold = "" if settings.redis_url else "redis_url is not set"

    def publish(self, writes: Iterable[StatusWrite]) -> None:
        """Writes the statuses of what was moved."""
        self._ask(lambda store: store.write(list(writes)))

    def drop(self, ids: Sequence[str], before: datetime) -> None:
        """Deletes those of deleted requests, as StatusStore.drop() has it."""
        self._ask(lambda store: store.drop(ids, before))

    def close(self) -> None:
        """Gives up the connection."""
        if self._store is not None:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, what: Callable[[StatusStore], object]) -> None:
        if self._store is not None:
            try:
                what(self._store)
            except StoreUnavailable as error:
                self._untold = str(error)
                self._store.close()
                self._store = None
        if self._untold:
            self._say(f"{self._untold.rstrip('.')}. {self._otherwise}")
            self._untold = ""


def as_row(row: Moved) -> Row:
    """What is told of a move."""
    names = ("id", "type", "from_state", "state", "code", "attempt", "run", "at", "due_at")
    return {name: getattr(row, name) for name in names}


def is_running(one: Row) -> str:
    """What is said of a request that runs right now, and has no row in the journal yet."""
    return (
        f"is running right now in worker {one['worker']} of {one['instance']}, since {one['since']}"
    )


def explain_unjournaled(settings: Settings, refused: Sequence[Refusal]) -> list[Refusal]:
    """The same refusals; of ids that the journal does not know, where they run or how they stand.

    Redis says so: there are requests that have no row yet, or never get one. Raises
    StoreUnavailable where it does not: nobody knows then whether there is such a request.
    """
    names = [one.id for one in refused if one.state is None]
    if not names or not settings.redis_url:
        return list(refused)
    known: dict[str, Refusal] = {}
    with closing(store_of(settings)) as store:
        for name, status in zip(names, store.read(names), strict=True):
            if status is not None and not status.of_no_request:
                known[name] = Refusal(name, status.state, _without_row(status))
    for one in running_now(settings):
        said = (
            f"{is_running(one)}; it can't be moved now, but cancelled by its id some seconds after"
            " it began: try again then"
        )
        known[one["request_id"]] = Refusal(one["request_id"], State.RUNNING, said)
    return [known.get(one.id, one) if one.state is None else one for one in refused]


def explain_those_known(settings: Settings, refused: Sequence[Refusal]) -> list[Refusal]:
    """The same for who has more to tell: where Redis does not answer, each says that."""
    try:
        return explain_unjournaled(settings, refused)
    except StoreUnavailable as error:
        said = f", and what only Redis knows is not known: {str(error).rstrip('.')}"
        return [
            one._replace(reason=f"{one.reason}{said}") if one.state is None else one
            for one in refused
        ]


def _without_row(status: Status) -> str:
    """Why it can't be moved as its status says it stands."""
    said = "as its status says, and has no row in the journal"
    if not status.settled:
        return (
            f"is {status.state}, {said} yet: it is on its way, or queued in an instance, and can be"
            " moved once it waits or runs; look at it again"
        )
    ended = f"is {status.state}/{status.code}, {said}"
    if status.state is State.FAILED:
        return f"{ended}; send it again with the same id to have it run"
    return f"{ended} to be moved: it has ended"


def end_running(
    settings: Settings,
    refused: Sequence[Refusal],
    withdraw: Withdraw,
    ending: Ending,
    by: By,
    told: Callable[[str], None] = lambda _: None,
) -> Cancelled:
    """Those of the refused that run come to an end; `told` hears of each.

    `withdraw` takes those out of the queue that wait there by now. Where Redis does not answer, and
    nothing was done yet, the result says so. Raises what `withdraw` raises as long as that is so.
    """
    names = {one.id for one in refused if one.state not in FINAL}
    types = ending.types
    try:
        at_work = {
            one["request_id"]: one
            for one in running_now(settings)
            if types is None or any(matches(one["type"], wanted) for wanted in types)
        }
        places = {name: at_work[name] for name in names & at_work.keys()}
        if not places:
            return Cancelled()
        for name, place in places.items():
            told(f"{name} {is_running(place)}")
        reason = by.said("cancelled")
        return cancel_running(settings, places, withdraw, reason=reason, wait=ending.wait)
    except StoreUnavailable as error:  # nobody was asked yet
        return Cancelled(problem=str(error))


def wants_results(settings: Settings) -> bool:
    """Whether what ends leaves a record for the results topic."""
    return bool(settings.kafka_results_topic)
