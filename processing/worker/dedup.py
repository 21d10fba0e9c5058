"""Which requests of a chunk run, in which company and order, and which are answered. Pure.

Before the look-up: those of a kind share transactions, and of one id only the first goes on. After
it: what the journal says of an id decides.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from feedback.contract.fingerprint import fingerprint
from feedback.contract.record import (
    KEY,
    PARTITION,
    TOPIC,
    Record,
    is_due,
    is_read_again,
    may_be_under_way,
    may_have_begun,
)
from feedback.contract.states import EXPIRED, FINAL, INSTANCE_DIED, DeadLetterReason, State
from feedback.journal import comparison
from feedback.journal.coalescing import Superseded
from feedback.journal.comparison import content_type_of, same_request
from feedback.journal.rows import RequestRow, StoredRequest
from processing.handlers.errors import InvalidPayload
from processing.handlers.handler import Handler
from processing.handlers.outcomes import Outcome
from processing.worker.task import Task

_NOT_AGAIN = (
    "whoever had it before died or left, perhaps while it ran: its type is not to be run again"
    " by itself"
)
_ALTERED = Outcome(
    State.DEAD, DeadLetterReason.CONFLICT.value,
    reason="the payload of its row is not the one that its fingerprint was made of",
)  # fmt: skip
"""It must not run; an operator sees it among those that are dead."""


@dataclass(slots=True)
class Dedup:
    """Tasks by what comes next, each list in their order."""

    answered: list[Task] = field(default_factory=list)
    """The journal has their answer."""
    conflicts: list[Task] = field(default_factory=list)
    """Their id belongs to another request."""
    ended: list[Task] = field(default_factory=list)
    """Their outcome stands and need only be written."""
    fresh: list[Task] = field(default_factory=list)
    """To be run in this transaction."""
    plain: list[Task] = field(default_factory=list)
    """Those that ran and whose row says no more than that they are done."""
    apart: list[Task] = field(default_factory=list)
    """To be run, with their effects elsewhere."""
    stale: list[Task] = field(default_factory=list)
    """Claimed rows that are no longer this instance's."""
    rows: list[RequestRow] = field(default_factory=list)
    """Of those that ended, in their order."""
    ousted: list[Superseded] = field(default_factory=list)
    """Rows that gave way to a newer one of these tasks."""

    def without_start(self, keep: Callable[[list[int]], list[int]]) -> list[Task]:
        """Keeps what ends here without a start from being recalled meanwhile.

        Takes out and returns what was recalled before. `keep` returns the indices that were not.
        """
        lists = (self.answered, self.conflicts, self.ended, self.stale)
        kept = set(keep([t.index for tasks in lists for t in tasks]))
        gone = [t for tasks in lists for t in tasks if t.index not in kept]
        if gone:
            for tasks in lists:
                tasks[:] = [t for t in tasks if t.index in kept]
        return gone


def sort_out(
    tasks: Iterable[Task],
    found: Mapping[str, StoredRequest],
    decided: set[int],
    reading: Callable[[Task], AbstractContextManager[None]],
) -> Dedup:
    """Notes what is stored on each task and says what comes next.

    Code of the user's that a row has to be read with runs inside of `reading`.
    """
    result = Dedup()
    for task in tasks:
        before, task.stored = task.stored, found.get(task.envelope.id)
        if task.fingerprint is None and task.claim is None:
            # Nobody could read its payload here: what its row says of it goes on.
            task.reference = None if task.stored is None else task.stored.coalesce_key
        if task.claim is not None:
            if task.stored is None or not _ours(task.claim, task.stored):
                result.stale.append(task)
                continue
            task.adopt(task.stored, decided=task.index in decided)
        elif task.stored is not None and conflicts(task, task.stored, reading):
            result.conflicts.append(task)
            continue
        elif task.stored is not None and (
            _stands(task, task.stored) or _ended_meanwhile(task, task.stored, before)
        ):
            result.answered.append(task)
            continue
        _next_of(task, result, decided=task.index in decided).append(task)
    return result


def called_elsewhere(task: Task, found: Mapping[str, StoredRequest]) -> bool:
    """Whether whoever had a message before holds the claim of its call.

    That ends or its lease does, and what follows in its lane is not to come before it.
    """
    stored = found.get(task.envelope.id)
    return (
        stored is not None
        and stored.state == State.RUNNING
        and may_be_under_way(task.record)
        and made_by(task, stored)
    )


def _next_of(task: Task, result: Dedup, *, decided: bool) -> list[Task]:
    """Where one goes on that nothing answers.

    What others may have begun ends so whatever reading says of it now: a deadline that has passed,
    or a hold that is by the clock, was not there when they read it.
    """
    end = _ALTERED if task.altered else not_again(task)
    if end is not None and not decided:
        task.end(end)
        decided = True
    if decided or (_ended_before(task) and not _asks(task, task.stored)):
        return result.ended
    return result.fresh if task.effect == "transaction" else result.apart


def conflicts(
    task: Task, stored: StoredRequest, reading: Callable[[Task], AbstractContextManager[None]]
) -> bool:
    """The same id with another type or payload.

    Where nobody here knows its type, or its fingerprint could not be made, they are compared as
    `same_request` can without. What cannot be compared is none: nothing of it is kept, and its row
    goes on with the payload that it has.
    """
    e = task.envelope
    if stored.type != e.type:
        return True
    if task.handler is None or task.fingerprint is None:
        knows = None if task.handler is None else not task.handler.custom_fingerprint
        same = same_request(stored, e.type, e.payload, e.options.content_type, comparable=knows)
        return same is False
    known = stored.fingerprint
    if known is None:
        if stored.payload is None or stored.payload == task.envelope.payload:
            return False
        if (content_type := content_type_of(stored)) is None:
            return False  # whoever claims it finds that it holds no request
        with reading(task):
            known = _made_of(task.handler, stored, stored.payload, content_type)
    return known != task.fingerprint


def _made_of(
    handler: Handler, stored: StoredRequest, payload: bytes, content_type: str
) -> bytes | None:
    """The fingerprint of a row whose writer could not make one: it was parked, or asked for."""
    if not handler.custom_fingerprint:
        return fingerprint(stored.type, payload, content_type)
    try:
        return handler.parse(payload, content_type)[1]
    except InvalidPayload as error:
        return error.fingerprint
    except BaseException:  # noqa: BLE001 - a function of the user's, which the row's own run will meet
        return None


def _ours(claim: str, stored: StoredRequest) -> bool:
    return stored.state == State.WAITING and stored.token == claim


def _stands(task: Task, stored: StoredRequest) -> bool:
    """The journal has an answer: nothing runs."""
    if made_by(task, stored):
        return True
    if stored.state == State.IN_DOUBT:
        return not _asks(task, stored)
    return stored.state in FINAL or stored.state in (State.RUNNING, State.WAITING)


def _asks(task: Task, stored: StoredRequest | None) -> bool:
    """Its check is to say what became of it: also once it has expired, as that ends no call."""
    if stored is None or stored.state != State.IN_DOUBT or stored.run == task.asked_run:
        return False
    checked = task.handler is not None and task.handler.check is not None
    return checked and (has_expired(task) or not _ended_before(task))


def _ended_meanwhile(task: Task, stored: StoredRequest, before: StoredRequest | None) -> bool:
    """Others ended it while its handler ran here, which must not be entered twice.

    They were given its partition, and what it did here is undone: their row is its answer.
    """
    if task.started is None or task.handler is None or task.handler.redelivery:
        return False
    return before is None or before.run != stored.run


def not_again(task: Task) -> Outcome | None:
    """How it ends where others may have begun it, and its handler must not be entered twice."""
    handler = task.handler
    # Outside effects have a claim that would have been found.
    if handler is None or handler.redelivery or handler.effect == "external":
        return None
    if task.claim is not None:
        again = task.stored is not None and task.stored.lost_claims > 0
    else:
        # Finished it would have a row, which pure computation never has.
        pure = handler.effect == "none"
        again = is_read_again(task.record) if pure else may_have_begun(task.record)
    return Outcome(State.FAILED, INSTANCE_DIED, reason=_NOT_AGAIN) if again else None


def made_by(task: Task, stored: StoredRequest) -> bool:
    """Whether the row is of this very message, which is read again, or of a later copy of it."""
    return comparison.made_by(stored, task.place, again=is_read_again(task.record))


def has_expired(task: Task) -> bool:
    """Its time is over, and it is not to be started; what was started before may have an end."""
    return _ended_before(task) and task.outcome is not None and task.outcome.code == EXPIRED


def _ended_before(task: Task) -> bool:
    """It ended without its handler: unknown type, invalid payload, expired, held back."""
    return task.outcome is not None and task.started is None


def lane_of(record: Record, ordering: str) -> Hashable:
    """What may not be reordered: its key, its partition, or nothing (None)."""
    if ordering == "key":
        return record[KEY]
    if ordering == "partition" and not is_due(record):
        return record[TOPIC], record[PARTITION]
    return None


def groups(tasks: Sequence[Task], ordering: str) -> list[list[Task]]:
    """Those that share transactions, in the order of their lanes: see `kinds_in_order`."""
    found = kinds_in_order(tasks, lambda record: lane_of(record, ordering))
    if ordering != "partition":
        for group in found:
            # Handlers lock the rows of their keys: in one order, or chunks deadlock.
            group.sort(key=_key_of)
    return found


def kinds_in_order(
    tasks: Sequence[Task], lane_of: Callable[[Record], Hashable]
) -> list[list[Task]]:
    """Single handlers together, each batch handler, external and pure ones, those without a tx.

    Where one lane is in several groups its order counts, and each group ends where the next one
    begins.
    """
    kinds = {_kind_of(handler) for handler in {t.handler for t in tasks}}
    if len(kinds) <= 1:
        return [list(tasks)] if tasks else []
    if _lanes_meet(tasks, lane_of):
        return _runs(tasks)
    return [[t for t in tasks if _kind_of(t.handler) == kind] for kind in sorted(kinds)]


def once_each(tasks: Sequence[Task]) -> tuple[list[Task], list[Task]]:
    """(the first of each id, the rest): a second message of one id waits for the first's row."""
    ids = {task.envelope.id for task in tasks}
    if len(ids) == len(tasks):  # as nearly always
        return list(tasks), []
    ids.clear()
    first: list[Task] = []
    rest: list[Task] = []
    for task in tasks:
        (rest if task.envelope.id in ids else first).append(task)
        ids.add(task.envelope.id)
    return first, rest


def _runs(tasks: Sequence[Task]) -> list[list[Task]]:
    found: list[list[Task]] = []
    last = None
    for task in tasks:
        if (kind := _kind_of(task.handler)) != last:
            found.append([])
            last = kind
        found[-1].append(task)
    return found


def _kind_of(handler: Handler | None) -> str:
    if handler is None:
        return ""
    if handler.effect == "external":
        return "external"
    if handler.batch:
        return f"batch {handler.type}"
    if handler.effect == "none":
        return "none"
    return "" if handler.wants_tx else "without tx"


def _lanes_meet(tasks: Sequence[Task], lane_of: Callable[[Record], Hashable]) -> bool:
    """Whether one lane is in two groups."""
    kinds: dict[Hashable, str] = {}
    return any(
        (lane := lane_of(t.record)) is not None
        and kinds.setdefault(lane, _kind_of(t.handler)) != _kind_of(t.handler)
        for t in tasks
    )


def _key_of(task: Task) -> bytes:
    # A decoder may give others: the message's own is that of its lane, whose order stays.
    own = task.record[KEY]
    return (task.envelope.key or b"") if own is None else own
