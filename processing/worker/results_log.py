"""Result records of a chunk, written with its rows where somebody wants them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from feedback.contract.states import DUPLICATE
from feedback.journal.coalescing import Superseded
from feedback.journal.result_outbox import ResultRecord, add_results
from processing.worker.records import result_record
from processing.worker.task import Task


class Results:
    """Nothing is written unless there is a results topic."""

    def __init__(self, schema: str, *, wanted: bool, duplicates: bool) -> None:
        self._schema = schema
        self._wanted = wanted
        self._duplicates = duplicates

    def add(
        self, cursor: psycopg.Cursor[Any], ended: Sequence[Task], answered: Sequence[Task] = ()
    ) -> None:
        """Records of what has ended, and of resends that were answered where that is wanted."""
        if not self._wanted:
            return
        records = [result_record(task) for task in ended]
        if self._duplicates:
            records += [
                ResultRecord(
                    stored.id, stored.type, stored.state, DUPLICATE,
                    None if stored.result is None else stored.result.encode(),
                )
                for stored in (task.stored for task in answered)
                if stored is not None
            ]  # fmt: skip
        add_results(cursor, self._schema, records)

    def add_ousted(self, cursor: psycopg.Cursor[Any], ousted: Sequence[Superseded]) -> None:
        """Records of requests whose place a newer one took."""
        if self._wanted:
            records = [ResultRecord(row.id, row.type, row.state, row.code) for row in ousted]
            add_results(cursor, self._schema, records)
