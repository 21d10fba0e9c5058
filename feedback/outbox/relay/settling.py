"""Reads what became of the requests that were sent, in bulk, and writes it into the outbox."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import psycopg

from feedback.client.result import Result
from feedback.contract.states import REOPENABLE
from feedback.errors import StoreUnavailable
from feedback.outbox.names import in_schema
from feedback.outbox.relay.answers import (
    AnswerPolicy,
    Ended,
    RequestKey,
    SentRow,
    judge,
)
from feedback.outbox.relay.records import LeftOut, as_status, key_of
from feedback.outbox.relay.statuses import StatusReader
from feedback.outbox.relay.transactions import LOCK, transaction
from feedback.outbox.relay.window import TOO_LATE, window_values
from feedback.outbox.relay.writing import FindingsWriter, Written
from feedback.postgres import Connection
from feedback.schema_versions import LOCK as _TAKE
from feedback.status.status import Status
from feedback.status.store import StatusStore

log = logging.getLogger("oncepool.relay")

PAGE: Final = 1_000
_LONGEST: Final = 15.0
"""Seconds of waiting for a turn, which a stop has to outlast."""

# Silence is counted by the clock that is read here.
_LOCK: Final = f"{_TAKE}, clock_timestamp()"
_PAGE: Final = f"""
SELECT seq, id, type, state, encode(fingerprint, 'hex'), seen, sends, tries,
    coalesce(next_at <= now(), true), {TOO_LATE}, created_at, true, sent_at,
    sent_at::text AS place
FROM :schema.requests
WHERE sender = %(sender)s AND state IN ('sent', 'unanswered') AND (sent_at, seq) > (
    coalesce(
        %(at)s::timestamptz,
        CASE WHEN %(young)s::float8 IS NOT NULL
            THEN least(now() - make_interval(secs => %(young)s), %(before)s) END,
        '-infinity'
    ), %(seq)s)
    AND NOT (sent_at > %(began)s AND sent_at <= statement_timestamp())
ORDER BY sent_at, seq LIMIT %(page)s
"""  # noqa: S608 - of constants
_BY_ID: Final = f"""
SELECT seq, id, type, state, encode(fingerprint, 'hex'), seen, sends, tries, false,
    coalesce({TOO_LATE}, false), created_at,
    state <> 'unsent' OR sent_at IS NOT NULL, sent_at
FROM :schema.requests
WHERE sender = %(sender)s AND id = ANY(%(ids)s) AND state <> 'undeliverable'
"""  # noqa: S608 - of constants
_UNSENT: Final = """
SELECT id, type, shard FROM :schema.requests
WHERE sender = %s AND id = ANY(%s) AND state = 'unsent'
"""
# Whoever sends holds its shards.
_FREE: Final = """
SELECT shard FROM :schema.shards WHERE sender = %s AND shard = ANY(%s)
FOR KEY SHARE SKIP LOCKED
"""

# All that an end is written to, whose privileges and locks it needs as an end does, and more than a
# page's free space, so that a full disk shows.
_PROBE: Final = """
WITH gone AS (
    DELETE FROM :schema.requests WHERE false
), kept AS (
    INSERT INTO :schema.finished (seq, created_at, settled_at, sends, id, type, sender, state,
        fingerprint, error)
    VALUES (0, now(), now(), 0, gen_random_uuid()::text, '', %(sender)s, '', '', %(filling)s)
    RETURNING id, type, sender, state
)
INSERT INTO :schema.inbox (id, type, sender, state)
SELECT id, type, sender, state FROM kept WHERE false
"""
_PROBE_SIZE: Final = 12_000
_TEXTS: Final = (_PAGE, _BY_ID, _UNSENT, _FREE, _PROBE)


class AnswersBusy(Exception):
    """Others have been writing answers for as long as it may be waited for."""


class Settling:
    """Passes over what one sender's rows wait for."""

    def __init__(
        self,
        schema: str,
        sender: str,
        store: StatusStore | None,
        policy: AnswerPolicy,
        *,
        inbox: bool,
        settled: Callable[[Ended], object] | None = None,
    ) -> None:
        """`settled` is called after the commit, at most once for each end."""
        self.schema = schema
        self._sender = sender
        self._statuses = None if store is None else StatusReader(store)
        self._policy = policy
        self._settled = settled
        self._inbox = inbox
        self._lock = f"oncepool outbox answers of {schema} {sender}"
        self._writer = FindingsWriter(schema, inbox=inbox)
        self._texts = {text: in_schema(text, schema).encode() for text in _TEXTS}
        self._other_types = LeftOut()
        self._locked = LeftOut()
        self._place: tuple[str, int] | None = None
        """The last row of the pass so far; its time as the database has it, which may be any."""
        self._began = datetime.max.replace(tzinfo=UTC)
        """When the pass began: what has been sent since then is the next one's."""
        self._before = self._began
        """When the last one began that came to its end."""
        self.locked: frozenset[RequestKey] = frozenset()
        """Of the last records: those that wait for whoever has locked their rows."""
        self._patience = LOCK
        """Seconds to wait for the next turn."""
        self.worked = 0.0
        """Seconds that the last page took from its turn on."""
        self.ended = 0
        """Ends that were written here."""
        self.again = 0
        """Rows that were put back here to be sent once more."""

    def probe(self, connection: Connection) -> None:
        """Writes an end and takes it back. Raises psycopg.Error where the outbox takes none."""
        with transaction(connection), connection.transaction(force_rollback=True):
            values = {"sender": self._sender, "filling": os.urandom(_PROBE_SIZE).hex()}
            connection.execute(self._texts[_PROBE], values)

    def page(self, connection: Connection, young: float | None = None) -> bool:
        """Looks at the next rows; False where the pass is over.

        They are PAGE, or as many as there is room and time for their statuses. A pass is over all
        rows, or over those that were sent in the last `young` seconds and since the one before it
        began; but for those sent since it began: it ends while others send all the time. It goes on
        after whatever is raised: with the same rows, or behind them where they could not be
        written.
        Raises AnswersBusy, StoreUnavailable, psycopg.Error.
        """
        with transaction(connection, self._patience):
            now = self._turn(connection)
            began = time.monotonic()
            if self._place is None:
                self._began = now
            rows = self._rows(connection, young)
            if not rows or self._statuses is None:
                self._place, self._before = None, self._began
                self.worked = time.monotonic() - began
                return False
            statuses = self._statuses.read([row.id for row, _ in rows])
            judged = rows[: len(statuses)]
            last, at = judged[-1]
            whole = len(judged) == len(rows) < PAGE
            self._place = None if whole else (at, last.seq)
            found = judge([row for row, _ in judged], statuses, self._policy, now)
            written = self._writer.write(connection, found)
        self.worked = time.monotonic() - began
        if whole:
            self._before = self._began
        self._tell(written)
        self._tell_locked(written, {row.seq: row.id for row, _ in judged})
        return not whole

    def records(self, connection: Connection, results: Sequence[Result]) -> list[RequestKey]:
        """Takes what result records say, where no status says more.

        Returns the keys of rows that are to be sent, as far as their marks say, of those that
        others have locked, and of those whose statuses had no room: look at those again.
        Raises psycopg.Error.
        """
        told = {key_of(result): result for result in results}
        with transaction(connection):
            [(_, now)] = connection.execute(_LOCK, [self._lock]).fetchall()
            rows = self._rows_of(connection, told)
            sent = [row for row in rows if row.was_sent]
            standing = self._standing(sent)
            judged = sent[: len(standing)]
            statuses = [
                self._telling(row, status, told[row.key])
                for row, status in zip(judged, standing, strict=True)
            ]
            findings = judge(judged, statuses, self._policy, now)
            written = self._writer.write(connection, findings)
        self._tell(written)
        gone = {one.seq for one in written.gone}
        locked = [row for row in rows if row.seq in written.locked]
        self.locked = frozenset(row.key for row in locked)
        later = [*sent[len(judged) :], *locked, *(row for row in rows if row.state == "unsent")]
        return list(dict.fromkeys(row.key for row in later if row.seq not in gone))

    def on_their_way(
        self, connection: Connection, keys: Sequence[RequestKey]
    ) -> frozenset[RequestKey]:
        """Those whose rows some relay is sending, or has sent and not marked.

        Raises psycopg.Error.
        """
        with transaction(connection):
            values = [self._sender, [key.id for key in keys]]
            found = connection.execute(self._texts[_UNSENT], values).fetchall()
            shards = list({shard for _, _, shard in found})
            free = connection.execute(self._texts[_FREE], [self._sender, shards]).fetchall()
        left = {shard for (shard,) in free}
        return frozenset(RequestKey(id_, type_) for id_, type_, shard in found if shard not in left)

    def _turn(self, connection: Connection) -> datetime:
        """Waits until nobody else writes answers: the time then.

        In a queue with all others, of this relay and of any: who would only try finds another one
        there each time, where records come in all the time. Whoever leaves the queue stands at its
        end again, and waits for longer.
        """
        found: list[tuple[object, datetime]]
        try:
            found = connection.execute(_LOCK, [self._lock]).fetchall()
        except psycopg.errors.LockNotAvailable as error:
            self._patience = min(_LONGEST, 2 * self._patience)
            raise AnswersBusy from error
        self._patience = LOCK
        return found[0][1]

    def _rows_of(self, connection: Connection, told: Mapping[RequestKey, Result]) -> list[SentRow]:
        """The rows that these are about."""
        values = {
            "sender": self._sender, "ids": list({key.id for key in told}),
            **window_values(self._policy),
        }  # fmt: skip
        found = connection.execute(self._texts[_BY_ID], values)
        rows = {row.id: row for row in map(SentRow._make, found)}
        for key in told:
            row = rows.get(key.id)
            if row is not None and row.key != key and (number := self._other_types.count()):
                log.warning(
                    "%d result records left out, of other types than the rows of their ids, last"
                    " %s: it is of %s, the row of %s",
                    number, key.id, key.type, row.type,
                )  # fmt: skip
        return [row for row in rows.values() if row.key in told]

    def _standing(self, rows: Sequence[SentRow]) -> Sequence[Status | None]:
        """Statuses, which unlike records name their payload, as far as they can be read.

        Of the first rows, where there is no room for all.
        """
        if self._statuses is not None and rows:
            try:
                return self._statuses.read([row.id for row in rows])
            except StoreUnavailable:
                pass
        return [None] * len(rows)

    def _telling(self, row: SentRow, standing: Status | None, result: Result) -> Status | None:
        """A status, unless it is not final and its request has ended since, and may not tell of it.

        Also one that failed may have been sent again, and so was one in doubt that was settled. An
        operator may have moved what is dead or cancelled, whose record then is the older one.
        What has no room in a record stands in a status, or will: sent again, it is answered. So
        where it is too late to be sent again, the record is all that there will be.
        """
        if standing is not None and (standing.of_no_request or standing.of_another_type(row.type)):
            standing = None
        record = as_status(result)
        if standing is not None:
            moved = record.state in REOPENABLE and record.at < standing.at
            ended = record.final and not moved
            if standing.final or standing.of_another_payload(row.fingerprint) or not ended:
                return standing
        in_work = None if standing is None or standing.settled else standing
        may_come = self._statuses is not None and not row.stale
        if result.result_omitted and (in_work is not None or may_come):
            return in_work
        return record

    def _tell(self, written: Written) -> None:
        """What was committed is counted, and told."""
        self.ended += len(written.gone)
        self.again += written.again
        if self._settled is None:
            return
        for ended in written.gone:
            try:
                self._settled(ended)
            except BaseException:  # sys.exit() in there would end this thread for good
                log.exception("request %s has ended, and the callback failed", ended.id)

    def _tell_locked(self, written: Written, ids: Mapping[int, str]) -> None:
        if written.locked and (number := self._locked.count()):
            log.warning(
                "%d pages with answers to rows that another transaction has locked: they wait for"
                " its end, last that of %s",
                number, ids[max(written.locked)],
            )  # fmt: skip

    def _rows(self, connection: Connection, young: float | None) -> list[tuple[SentRow, str]]:
        """The next rows, and when they were sent."""
        at, seq = self._place or (None, 0)
        values = {
            "sender": self._sender, "page": PAGE, "at": at, "seq": seq, "young": young,
            "began": self._began, "before": self._before, **window_values(self._policy),
        }  # fmt: skip
        found = connection.execute(self._texts[_PAGE], values).fetchall()
        return [(SentRow._make(row[:-1]), row[-1]) for row in found]
