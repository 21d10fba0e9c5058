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
"""Takes out of the queue what waits there by now; returns those that it took."""


@dataclass(slots=True)
class Cancelled:
    """What became of requests that ran."""

    rows: list[Row] = field(default_factory=list)
    """Those that were ended; also those of which nobody knows whether they had their effect."""
    ended: list[Refusal] = field(default_factory=list)
    """Those that came to an end of their own before."""
    late: list[Refusal] = field(default_factory=list)
    """Those of which nothing was heard in time."""


def cancel_running(
    settings: Settings,
    at_work: Mapping[str, Row],
    withdraw: Withdraw,
    *,
    reason: str,
    wait: float,
) -> Cancelled:
    """Has running requests cancelled; `at_work` are their rows of `running_now`, by request id.

    At most `wait` seconds. Raises StoreUnavailable and what asks the journal.
    """
    result, left, asked_at = Cancelled(), dict(at_work), float("-inf")
    end = time.monotonic() + wait
    with unanswered(), connect(settings.redis_url) as client:
        cancellations = Cancellations(client, settings.redis_prefix)
        while left:
            for name, status in zip(left, look_up(settings, list(left)), strict=True):
                if status is not None and _has_ended(status, at_work[name]):
                    _sort(status, result)
            _forget(left, result)
            result.rows += withdraw(list(left)) if left else []
            _forget(left, result)
            now = time.monotonic()
            if now >= end:
                break
            if now - asked_at >= ASK_EVERY:
                asked_at = now
                for name in left:
                    cancellations.ask(left[name]["instance"], name, reason)
            time.sleep(min(LOOK_EVERY, end - now) if left else 0)
        for name, place in left.items():
            unread = cancellations.withdraw(place["instance"], name)
            result.late.append(Refusal(name, State.RUNNING, _late(place, wait, unread=unread)))
    return result


def _has_ended(status: Status, place: Row) -> bool:
    """Since it began to run where it was seen."""
    return status.settled and status.at >= datetime.fromisoformat(place["since"])


def _sort(status: Status, result: Cancelled) -> None:
    if status.code == CANCELLED:
        result.rows.append(_row(status))
    else:
        said = f"had ended before it could be cancelled: {status.state}/{status.code}"
        result.ended.append(Refusal(status.id, status.state, said))


def _forget(left: dict[str, Row], result: Cancelled) -> None:
    for known in (*(row["id"] for row in result.rows), *(one.id for one in result.ended)):
        left.pop(known, None)


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
