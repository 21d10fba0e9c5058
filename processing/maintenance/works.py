"""What the database thread does while the database is there, in the order in which it does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from feedback.journal.connections import Connection
from processing.maintenance.claimer import Claimer
from processing.maintenance.doubts import Doubts
from processing.maintenance.lost_calls import LostCalls
from processing.maintenance.ticking import Ticking
from processing.maintenance.unstarted_handling import UnstartedHandling

RENEW: Final = "renew"
CLAIM: Final = "claim"


def no_pause(_now: float) -> float | None:
    """Of work that somebody else knows to be due."""
    return None


class Work(NamedTuple):
    """One piece of it."""

    name: str
    do: Callable[[Connection], object]
    """Raises psycopg.Error where the database is away."""
    pause: Callable[[float], float | None] = no_pause
    """Seconds until there is something to do; None while there is nothing."""


class Works(NamedTuple):
    """All of it but what comes by the clock. Leases come first: nothing may take their time."""

    renewal: Work
    letters: Work
    parking: Work
    calls: Work
    ticks: Work
    returns: Work
    claiming: Work
    asking: Work


def works_of(
    claimer: Claimer,
    unstarted: UnstartedHandling,
    lost_calls: LostCalls,
    ticking: Ticking,
    doubts: Doubts,
) -> Works:
    """What these have to do."""
    return Works(
        renewal=Work(RENEW, claimer.renewals.renew, claimer.renewals.pause),
        letters=Work("letters", unstarted.write_letters, unstarted.letters_pause),
        parking=Work("park", unstarted.park_next, unstarted.pause),
        calls=Work("calls", lost_calls.settle, lost_calls.pause),
        ticks=Work("ticks", ticking.make, ticking.pause),
        returns=Work("give back", claimer.give_back, claimer.return_pause),
        claiming=Work(CLAIM, claimer.claim, claimer.pause),
        asking=Work("ask", doubts.take, doubts.pause),
    )
