"""Dead letters of refused messages: they wait for the database, since nobody sends them again."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

import psycopg

from feedback.contract.counts import Count
from feedback.contract.record import place_text, record_size
from feedback.journal.dead_letters import DeadLetter
from feedback.journal.halving import write_in_halves
from feedback.journal.writer import JournalWriter
from processing.logs import BoundLogger

AT_ONCE: Final = 100
BYTES_AT_ONCE: Final = 1024 * 1024
"""Of letters that are stored together; what is larger goes alone."""


class DeadLetterBuffer:
    """Filled by one thread, emptied by another."""

    def __init__(self, schema: str, log: BoundLogger) -> None:
        self._rows = JournalWriter(schema)
        self._log = log
        self._lock = threading.Lock()
        self._waiting: deque[tuple[int, DeadLetter]] = deque()
        self._most = AT_ONCE
        """Letters that are stored together: fewer after a failure, to find what is to blame."""

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, part: int, letters: Sequence[DeadLetter]) -> None:
        """Takes letters that belong to one part of what the main process handed over."""
        with self._lock:
            self._waiting.extend((part, letter) for letter in letters)

    def write(self, connection: psycopg.Connection[Any]) -> tuple[Counter[int], dict[Count, int]]:
        """Stores some; returns how many of each part it is done with, and what was stored.

        Raises psycopg.Error where the database is away; then all are still here, and one that was
        tried alone comes behind the others.
        """
        batch = self._next()
        try:
            refused = write_in_halves(
                connection, [letter for _, letter in batch], partial(self._store, connection)
            )
        except psycopg.Error:
            self._most = max(1, len(batch) // 2)
            if len(batch) == 1:
                with self._lock:
                    self._waiting.rotate(-1)
            raise
        self._most = min(2 * self._most, AT_ONCE)
        for letter, error in refused:
            self._log.error(
                "a dead letter could not be stored: its message stands in the topic",
                error=str(error), **_facts(letter),
            )  # fmt: skip
        lost = {id(letter) for letter, _ in refused}
        stored = [letter for _, letter in batch if id(letter) not in lost]
        for letter in stored:
            self._log.warning("stored as dead letter", **_facts(letter))
        with self._lock:
            for _ in batch:
                self._waiting.popleft()
        return Counter(part for part, _ in batch), Counter(letter.counted_as for letter in stored)

    def _next(self) -> list[tuple[int, DeadLetter]]:
        """Those to be stored now; they stay."""
        batch: list[tuple[int, DeadLetter]] = []
        size = 0
        with self._lock:
            for entry in islice(self._waiting, self._most):
                size += record_size(entry[1].record)
                if batch and size > BYTES_AT_ONCE:
                    break
                batch.append(entry)
        return batch

    def name_lost(self) -> None:
        """Says in the log which messages nobody keeps, now that this process ends."""
        for _, letter in self._waiting:
            self._log.error(
                "a dead letter is not written: the database stayed away", **_facts(letter)
            )

    def _store(self, connection: psycopg.Connection[Any], letters: Sequence[DeadLetter]) -> None:
        with connection.cursor() as cursor:
            for letter in letters:
                self._rows.add_letter(cursor, letter)


def _facts(letter: DeadLetter) -> dict[str, Any]:
    return {
        "request_id": letter.request_id,
        "why": letter.error,
        "place": place_text(letter.record),
    }
