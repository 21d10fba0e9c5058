"""Messages that cannot become a request: kept as dead letters, told where they have an id."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

import psycopg

from feedback.contract.record import place_text
from feedback.journal.database_errors import is_lock_race
from feedback.journal.dead_letters import DeadLetter
from feedback.journal.writer import JournalWriter
from feedback.status.status import StatusWrite
from processing.handlers.outcomes import describe
from processing.logs import BoundLogger, RateLimited
from processing.worker.chunk_run import ChunkRun
from processing.worker.outages import Outages
from processing.worker.session import Session


class DeadLetters:
    """Writes dead letters in a transaction of their own."""

    def __init__(
        self,
        session: Session,
        outages: Outages,
        rows: JournalWriter,
        publish: Callable[[list[StatusWrite]], None],
        log: BoundLogger,
    ) -> None:
        self._session = session
        self._outages = outages
        self._rows = rows
        self._publish = publish
        self._log = log
        self._told = RateLimited(log)

    def write(self, letters: dict[int, DeadLetter], chunk: ChunkRun) -> None:
        """Keeps them, and counts and tells those that it could keep.

        What others lock out comes again. Raises DatabaseAway: then nothing is said of those that
        are not kept.
        """
        kept, locked = dict(letters), []
        try:
            # The same letter twice is one, so an unknown commit outcome is no matter.
            self._outages.redo(lambda: self._keep(kept.values()))
        except psycopg.Error:
            for index, letter in letters.items():
                if (error := self._keep_alone(letter)) is None:
                    continue
                del kept[index]
                if is_lock_race(error):
                    locked.append(index)
                else:
                    self._lose(letter, error)
        for letter in kept.values():
            self._told.warning(
                "message became a dead letter", request_id=letter.request_id,
                place=place_text(letter.record), reason=str(letter.reason), why=letter.error,
            )  # fmt: skip
        self._told.flush()
        now = datetime.now(UTC)
        self._publish([write for letter in kept.values() for write in letter.failed_status(now)])
        chunk.tally.counts.update(letter.counted_as for letter in kept.values())
        chunk.settled.update(letters)
        chunk.unclear += locked

    def _keep(self, letters: Iterable[DeadLetter]) -> None:
        session = self._session
        session.begin()
        for letter in letters:
            self._rows.add_letter(session.cursor(), letter)
        session.commit()

    def _keep_alone(self, letter: DeadLetter) -> psycopg.Error | None:
        """Why it is not kept."""
        try:
            self._outages.redo(lambda: self._keep([letter]))
        except psycopg.Error as error:
            self._outages.blame_database(error)
            return error
        return None

    def _lose(self, letter: DeadLetter, error: psycopg.Error) -> None:
        self._log.error(
            "a dead letter could not be stored: its message stands in the topic",
            request_id=letter.request_id, place=place_text(letter.record), why=letter.error,
            error=describe(error),
        )  # fmt: skip
