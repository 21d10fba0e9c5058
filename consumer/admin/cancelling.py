"""Cancels requests that run: asks the instances that run them, and waits for what becomes of it.

The journal says what became of a request; where it keeps no row of it, its status does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from consumer.admin.lookup import look_up
from consumer.admin.running import unanswered
from consumer.config.settings import Settings
from feedback.contract.states import CANCELLED, State
from feedback.errors import OncepoolError, StoreUnavailable
from feedback.operations.explanations import Refusal
from feedback.operations.request_reads import Row
from feedback.status.status import Status
from processing.cluster.cancellations import Cancellations
from processing.cluster.instances import connect

LOOK_EVERY: Final = 0.2
"""Seconds between two looks at what has become of them."""
ASK_EVERY: Final = 2.0
"""Seconds after which an instance is asked once more: its maintenance process may have died."""

Withdraw = Callable[[Sequence[str]], list[Row]]
"""Takes out of the queue what waits there by now; returns those that it took.

Raises OncepoolError."""


@dataclass(slots=True)
class Cancelled:
    """What became of requests that ran."""

    rows: list[Row] = field(default_factory=list)
    """Those that were ended; also those of which nobody knows whether they had their effect."""
    ended: list[Refusal] = field(default_factory=list)
    """Those that came to an end of their own before, or were ended by somebody else."""
    late: list[Refusal] = field(default_factory=list)
    """Those of which nothing was heard in time."""
    problem: str = ""
    """Why nothing was done, where Redis did not answer."""


def cancel_running(
    settings: Settings,
    at_work: Mapping[str, Row],
    withdraw: Withdraw,
    *,
    reason: str,
    wait: float,
) -> Cancelled:
    """Has running requests cancelled; `at_work` are their rows of `running_now`, by request id.

    `reason` becomes that of each, and tells those who cancel the same one at once from each other.
    At most `wait` seconds. Raises StoreUnavailable and what `withdraw` raises as long as nothing
    was asked and nothing has ended; after that `late` has what is left where something fails.
    """
    with connect(settings.redis_url) as client:
        asking = _Asking(Cancellations(client, settings.redis_prefix), at_work, reason)
        result, end = asking.result, time.monotonic() + wait
        problem = ""
        try:
            while asking.left:
                asking.sort(look_up(settings, list(asking.left)))
                if asking.left:
                    asking.add(withdraw(list(asking.left)))
                asking.take_back()
                now = time.monotonic()
                if now >= end:
                    break
                asking.ask(now)
                time.sleep(min(LOOK_EVERY, end - now) if asking.left else 0)
        except OncepoolError as error:
            if not (asking.asked or result.rows or result.ended):
                raise
            problem = _away(error)
        asking.give_up(wait, problem)
    return result


class _Asking:
    """Those that are to end, what their instances were asked, and what became of them."""

    def __init__(
        self, cancellations: Cancellations, at_work: Mapping[str, Row], reason: str
    ) -> None:
        self._cancellations = cancellations
        self._at_work = at_work
        self._reason = reason
        self._asked_at = float("-inf")
        self._read: set[str] = set()
        """Those whose instance has read that they are to end."""
        self.left = dict(at_work)
        self.asked: set[str] = set()
        """Those whose instance may know of it; not what has ended, once its ask is taken back."""
        self.result = Cancelled()

    def sort(self, statuses: Sequence[Status | None]) -> None:
        """Takes out what has ended, as the statuses of those that are left say."""
        for name, status in zip(list(self.left), statuses, strict=True):
            if status is not None and _has_ended(status, self._at_work[name]):
                self._sort(status)
                self.left.pop(name)

    def _sort(self, status: Status) -> None:
        """An end is nobody's but his whom its reason names."""
        if status.code != CANCELLED:
            said = f"had ended before it could be cancelled: {status.state}/{status.code}"
        elif status.reason != self._reason:
            said = _cancelled_already(status)
        else:
            self.result.rows.append(_row(status))
            return
        self.result.ended.append(Refusal(status.id, status.state, said))

    def add(self, rows: Sequence[Row]) -> None:
        """Takes out what was withdrawn where it waits."""
        self.result.rows += rows
        for row in rows:
            self.left.pop(row["id"], None)

    def take_back(self) -> None:
        """Asks for what has ended: another run of it may begin. Raises StoreUnavailable."""
        for name in self.asked - self.left.keys():
            with unanswered():
                self._cancellations.withdraw(self._at_work[name]["instance"], name)
            self.asked.remove(name)

    def ask(self, now: float) -> None:
        """Asks for all that are left, unless that was a moment ago. Raises StoreUnavailable."""
        if now - self._asked_at < ASK_EVERY:
            return
        self._asked_at = now
        for name, place in self.left.items():
            again = name in self.asked
            self.asked.add(name)  # a request whose answer is lost may have been taken
            with unanswered():
                was_read = self._cancellations.ask(
                    place["instance"], name, self._reason, place.get("chunk")
                )
            if again and was_read:
                self._read.add(name)

    def give_up(self, wait: float, problem: str) -> None:
        """What is left is late. `problem`: what did not answer, where it was not the time."""
        away = False
        for name, place in self.left.items():
            unread = name not in self.asked
            if not unread and not away:
                try:
                    with unanswered():
                        gone = self._cancellations.withdraw(place["instance"], name)
                    unread = gone and name not in self._read
                except StoreUnavailable as error:
                    away = True  # it is not waited for with each of them
                    problem = problem or _away(error)
            said = _broke_off(place, problem, unread=unread) if problem else ""
            said = said or _late(place, wait, unread=unread)
            self.result.late.append(Refusal(name, State.RUNNING, said))


def _has_ended(status: Status, place: Row) -> bool:
    """Since it began to run where it was seen."""
    return status.settled and status.at >= datetime.fromisoformat(place["since"])


def _cancelled_already(status: Status) -> str:
    """By whom, and why, as far as its reason tells: of what waited it tells why alone."""
    doubt = " while it ran, and is in doubt" if status.state is State.IN_DOUBT else ""
    said = f"was cancelled by somebody else before{doubt}"
    return f"{said}: {status.reason}" if status.reason else said


def _row(status: Status) -> Row:
    """As that of a request which was moved."""
    head: dict[str, Any] = {"id": status.id, "type": status.type, "from_state": State.RUNNING}
    names = ("state", "code", "attempt", "run", "at")
    return {**head, **{name: getattr(status, name) for name in names}, "due_at": None}


def _late(place: Row, wait: float, *, unread: bool) -> str:
    where = f"worker {place['worker']} of {place['instance']}"
    if unread:
        return f"runs in {where}, which did not answer for {wait:g} s; nothing was changed"
    return f"was to be cancelled in {where}, and has not ended after {wait:g} s; look at it again"


def _broke_off(place: Row, problem: str, *, unread: bool) -> str:
    where = f"worker {place['worker']} of {place['instance']}"
    if unread:
        return f"runs in {where}, and was not told to end, as {problem}; look at it again"
    return f"was asked to end in {where}; then {problem}; look at it again"


def _away(error: OncepoolError) -> str:
    store = isinstance(error, StoreUnavailable)
    return f"{'Redis' if store else 'the journal'} did not answer"
