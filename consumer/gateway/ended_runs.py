"""Keeps in the journal who ended what ran, once it has ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from consumer.gateway.database import DatabaseThreads
from feedback.errors import OncepoolError
from feedback.operations.operator_changes import note_ended_runs, that_ran
from feedback.operations.request_actions import By
from feedback.operations.request_reads import Row
from processing.logs import get_logger

NOTED_WITHIN: Final = 5.0
"""Seconds in which the journal has to keep it."""

log = get_logger("oncepool.gateway")


async def note_ends(threads: DatabaseThreads, rows: Sequence[Row], by: By, schema: str) -> None:
    """Of what was moved those that ran; where the journal does not answer the log alone has it.

    They have ended all the same: each says in its reason who did it, and why.
    """
    ended = that_ran(rows)
    if not ended:
        return
    try:
        await threads.run(lambda c: note_ended_runs(c, ended, by, schema=schema), NOTED_WITHIN)
    except OncepoolError as error:
        log.warning("what ran and was ended is not in the audit", error=str(error), who=by.who,
                    why=by.why, requests=[row["id"] for row in ended])  # fmt: skip
