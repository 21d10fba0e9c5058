"""Writes the requests that handlers asked for, beside the rows of those that asked."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import psycopg

from feedback.contract.states import State
from feedback.journal.writer import JournalWriter
from feedback.status.store import StatusWrite
from feedback.status.writes import row_status
from processing.worker.chunk_run import Job
from processing.worker.records import final_of, follow_up_row
from processing.worker.task import Task


def write_follow_ups(
    rows: JournalWriter, cursor: psycopg.Cursor[Any], ended: Sequence[Task], now: datetime, job: Job
) -> list[StatusWrite]:
    """Writes what requests that are done asked for; their statuses."""
    asked = [
        follow_up_row(task, follow_up, now)
        for task in ended
        if task.follow_ups and final_of(task).state is State.DONE
        for follow_up in task.follow_ups
    ]
    if not asked:
        return []
    written = rows.insert_missing(cursor, asked)
    for row in asked:
        job.wait_until(row.not_before, now)
    return [row_status(row, now) for row in asked if row.id in written]
