"""What must hold where one worker lost its connection to the database. Pure."""

from __future__ import annotations

from tests.chaos.real.books import IN_HAND
from tests.chaos.real.facts import Facts
from tests.chaos.real.faults import Struck

ONE_CONNECTION = frozenset({
    "database_backend_ended_idle", "database_backend_ended_busy", "database_commit_reply_lost",
})  # fmt: skip
"""Faults that cost one worker its connection, and nobody else anything."""
REFUSING = ("database", "temporary_folder_full", "descriptors_exhausted", "processes_exhausted")
"""How kinds of faults begin that may have requests refused: the database's, and the machine's."""
ENOUGH = 40
"""Lost connections of which at least one is struck alone, in any run that has so many."""


def one_connection_is_no_outage(facts: Facts) -> list[str]:
    """Where one worker lost its connection, and nothing else can have refused them, nobody was."""
    return [
        f"{name} refused during {struck.kind}"
        for struck in lost_alone(facts)
        for at, name, what in facts.ledger.refusals
        if what == "failed/database_unavailable" and struck.began < at < struck.ended + 1
    ]


def lost_connections(facts: Facts) -> list[Struck]:
    """Those of one worker."""
    return [one for one in facts.struck if one.kind in ONE_CONNECTION and one.evidence]


def lost_alone(facts: Facts) -> list[Struck]:
    """Lost connections with nothing else that refuses, from `IN_HAND` before to a second after."""
    refusing = [
        s for s in facts.struck
        if s.kind.startswith(REFUSING) and s.kind not in ONE_CONNECTION
    ]  # fmt: skip
    return [
        one for one in lost_connections(facts)
        if not any(s.began < one.ended + 1 and s.ended > one.began - IN_HAND for s in refusing)
    ]  # fmt: skip


def none_was_judged(lost: int, alone: int) -> list[str]:
    """Of a whole run: what says nothing because it never applied."""
    if alone or lost < ENOUGH:
        return []
    return [f"of {lost} lost connections none was judged: others struck beside each of them"]
