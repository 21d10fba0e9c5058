"""What operators do with an outbox: look at it, and move what could not be sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from feedback.outbox.names import (
    CONFLICT,
    DROPPED_CONFLICT,
    NOTIFIED_ID,
    WINDOW,
    in_schema,
    settled_channel,
)
from feedback.sql_times import nearest

if TYPE_CHECKING:
    import psycopg

UNDELIVERABLE: Final = "undeliverable"
DEAD: Final = ("unanswered", UNDELIVERABLE)
"""States in which a row waits for somebody."""
AT_ONCE: Final = 1_000
_RUNS_AGAIN: Final = "where it ran, `oncepool requests retry` runs it again"
_INSTEAD: Final = {
    **dict.fromkeys(("dead", "failed", "cancelled"), _RUNS_AGAIN),
    "in_doubt": "where it ran, `oncepool requests resolve` says what it came to",
}
"""What may be done with a request that has ended, which the consumers keep."""
COLUMNS: Final = (
    *("id", "type", "sender", "state", "code", "sends", "created_at", "sent_at", "next_at"),
    *("reference", "error"),
)

_WHERE: Final = """
state = ANY(%(states)s) AND (%(ids)s::text[] IS NULL OR id = ANY(%(ids)s))
    AND (%(type)s::text IS NULL OR type LIKE %(type)s)
    AND (%(sender)s::text IS NULL OR sender = %(sender)s) AND seq > %(after)s
"""
_ENDED: Final = [name if name != "next_at" else "NULL AS next_at" for name in COLUMNS]
_LIST: Final = f"""
(SELECT {", ".join(COLUMNS)}, seq FROM :schema.requests WHERE {_WHERE}
 ORDER BY seq LIMIT %(limit)s)
"""  # noqa: S608 - of constants
# What the consumers have refused as another request's copy has ended, and waits for somebody, too.
_CONFLICTS: Final = f"state = '{UNDELIVERABLE}' AND code = '{CONFLICT}' AND {_WHERE}"
_LIST_WITH_CONFLICTS: Final = f"""
{_LIST}
UNION ALL
(SELECT {", ".join(_ENDED)}, seq FROM :schema.finished WHERE {_CONFLICTS}
 ORDER BY seq LIMIT %(limit)s)
ORDER BY seq LIMIT %(limit)s
"""  # noqa: S608 - of constants
_DROP_CONFLICTS: Final = f"""
WITH chosen AS (
    SELECT id FROM :schema.finished WHERE {_CONFLICTS} ORDER BY seq LIMIT %(limit)s FOR UPDATE
), gone AS (
    UPDATE :schema.finished f SET code = '{DROPPED_CONFLICT}' FROM chosen WHERE f.id = chosen.id
    RETURNING f.seq, f.id
)
SELECT seq, id FROM gone ORDER BY seq
"""  # noqa: S608 - of constants
_CHOSEN: Final = f"""
WITH chosen AS (
    SELECT seq FROM :schema.requests WHERE {_WHERE} ORDER BY seq LIMIT %(limit)s FOR UPDATE
)
"""  # noqa: S608 - of constants
# What is asked for now is in time: a decision counts as a send, which a relay that was away for
# longer than the window does not repeat either.
_RETRY: Final = f"""
{_CHOSEN}, moved AS (
    UPDATE :schema.requests r
    SET state = 'unsent', failures = 0, tries = 0, next_at = NULL, code = NULL, error = NULL,
        sent_at = CASE WHEN sent_at IS NOT NULL THEN now() END
    FROM chosen WHERE r.seq = chosen.seq RETURNING r.seq, r.id
), told AS (SELECT pg_notify(%(channel)s, ''))
SELECT seq, id FROM moved LEFT JOIN told ON true ORDER BY seq
"""  # noqa: S608 - of constants
_LONG_SILENT: Final = f"""
SELECT count(*) FROM :schema.requests WHERE {_WHERE} AND sent_at IS NOT NULL
    AND greatest(sent_at, not_before) < now() - make_interval(secs => {WINDOW})
"""  # noqa: S608 - of constants
# The end of a request, of which its producer is told as of any other. Of one that has ended before,
# a second row of it is old news.
_DROP: Final = f"""
{_CHOSEN}, gone AS (
    DELETE FROM :schema.requests r USING chosen WHERE r.seq = chosen.seq RETURNING r.*
), kept AS (
    INSERT INTO :schema.finished (seq, created_at, sent_at, settled_at, sends, id, type, sender,
        state, code, fingerprint, key, reference, error)
    SELECT seq, created_at, sent_at, now(), sends, id, type, sender, state, code, fingerprint, key,
        reference, error
    FROM gone ON CONFLICT (id) DO NOTHING
    RETURNING *
), inbox AS (
    INSERT INTO :schema.inbox (id, type, sender, state, code, reference, error)
    SELECT id, type, sender, state, code, reference, error FROM kept WHERE %(inbox)s ORDER BY seq
), told AS (
    SELECT seq, pg_notify(%(settled)s, {NOTIFIED_ID}) FROM kept
)
SELECT gone.seq, gone.id FROM gone LEFT JOIN told USING (seq) ORDER BY gone.seq
"""  # noqa: S608 - of constants
_PRUNE: Final = """
DELETE FROM :schema.finished WHERE id IN (
    SELECT id FROM :schema.finished WHERE settled_at < %s ORDER BY settled_at LIMIT %s
)
"""
_STANDING: Final = """
SELECT id, state, settled_at IS NOT NULL,
    sent_at IS NOT NULL AND NOT coalesce(code = ANY(%s), false)
FROM :schema.all_requests WHERE id = ANY(%s)
"""
_STATS: Final = f"""
SELECT type, sender, state, count(*) AS n,
    round(greatest(extract(epoch FROM now() - min({nearest("created_at")})), 0), 1)::float8
        AS oldest
FROM :schema.requests GROUP BY type, sender, state ORDER BY type, sender, state
"""  # noqa: S608 - of constants


Moving: TypeAlias = Callable[[Sequence[str]], object]
"""Hears the ids of each part before it is committed."""


class OutboxFilter(NamedTuple):
    """Which rows; None where it does not matter."""

    states: Sequence[str] = DEAD
    ids: Sequence[str] | None = None
    type: str | None = None
    """As LIKE takes it."""
    sender: str | None = None


class Standing(NamedTuple):
    """Where a row is that can't be moved."""

    state: str
    finished: bool
    may_have_run: bool
    """It was sent, or may have been, and no consumer has refused it as another request's copy."""

    @property
    def why(self) -> str:
        """Why, and what can be done instead."""
        if not self.finished:
            return f"is {self.state}, no dead letter: the relay goes on with it"
        if self.state in DEAD and self.may_have_run:
            return (
                f"has ended as {self.state}, and may have run: see `oncepool requests show`, and"
                " add it under another id only where it did not"
            )
        if self.state in DEAD:
            return f"has ended as {self.state}, and its payload is gone: add it under another id"
        return f"has ended as {self.state}: {_INSTEAD.get(self.state, 'its answer stands')}"


class OutboxOperator:
    """What an operator's connection, in autocommit mode, does with one outbox."""

    def __init__(
        self, connection: psycopg.Connection[Any], schema: str, *, inbox: bool = False
    ) -> None:
        """`inbox`: what is dropped is a row of the table `inbox`, too, as other ends are."""
        self._connection = connection
        self._schema = schema
        self._inbox = inbox

    def transaction(self) -> AbstractContextManager[object]:
        """What is done in it stands as a whole, or not at all."""
        return self._connection.transaction()

    def rows(self, wanted: OutboxFilter, limit: int) -> list[dict[str, Any]]:
        """Open rows, and those that were refused as conflicts; oldest first, by COLUMNS."""
        text = _LIST_WITH_CONFLICTS if UNDELIVERABLE in wanted.states else _LIST
        found = self._run(text, wanted, 0, limit).fetchall()
        return [dict(zip(COLUMNS, row[:-1], strict=True)) for row in found]

    def retry(
        self, wanted: OutboxFilter, moving: Moving = lambda _: None
    ) -> Iterator[Sequence[str]]:
        """Has dead letters sent anew, under their ids, in their old order.

        Yields the ids of each part when it is done, of which `moving` has heard before.
        """
        return self._move(_RETRY, wanted, moving)

    def long_silent(self, wanted: OutboxFilter) -> int:
        """How many of these were sent, and so long ago that consumers may have forgotten them."""
        [(number,)] = self._run(_LONG_SILENT, wanted, 0, 0).fetchall()
        return int(number)

    def drop(
        self, wanted: OutboxFilter, moving: Moving = lambda _: None
    ) -> Iterator[Sequence[str]]:
        """Ends dead letters: they go to the finished rows, where their ids stay taken.

        Their producer is told, as of every end, in the same transaction. A conflict stands there
        already, and is listed no more. Yields as retry().
        """
        yield from self._move(_DROP, wanted, moving)
        if UNDELIVERABLE in wanted.states:
            yield from self._move(_DROP_CONFLICTS, wanted, moving)

    def now(self) -> datetime:
        """By the database's clock, as the times of its rows."""
        [(now,)] = self._connection.execute("SELECT clock_timestamp()").fetchall()
        said: datetime = now
        return said.astimezone(UTC)

    def prune_parts(self, before: datetime) -> Iterator[int]:
        """Forgets finished rows that ended before; their ids are new again then.

        Yields how many of each part when it is done.
        """
        while some := self._connection.execute(self._text(_PRUNE), [before, AT_ONCE]).rowcount:
            yield some

    def standing(self, ids: Sequence[str]) -> dict[str, Standing]:
        """How these stand, as far as they are there."""
        values = [[CONFLICT, DROPPED_CONFLICT], list(ids)]
        found = self._connection.execute(self._text(_STANDING), values).fetchall()
        return {id_: Standing(*rest) for id_, *rest in found}

    def figures(self) -> list[dict[str, Any]]:
        """Open rows by type, sender and state: how many (`n`), age of the `oldest` in seconds."""
        names = ("type", "sender", "state", "n", "oldest")
        found = self._connection.execute(self._text(_STATS)).fetchall()
        return [dict(zip(names, row, strict=True)) for row in found]

    def _move(self, text: str, wanted: OutboxFilter, moving: Moving) -> Iterator[Sequence[str]]:
        """Some rows in each transaction, so that relays wait for none of them long."""
        dead = wanted._replace(states=[state for state in wanted.states if state in DEAD])
        after = 0
        while True:
            with self.transaction():
                moved = self._run(text, dead, after, AT_ONCE).fetchall()
                ids = [id_ for _, id_ in moved]
                moving(ids)
            if not moved:
                return
            yield ids
            after = moved[-1][0]

    def _run(self, text: str, wanted: OutboxFilter, after: int, limit: int) -> Any:
        values = {
            "states": list(wanted.states),
            "ids": None if wanted.ids is None else list(wanted.ids),
            "type": wanted.type,
            "sender": wanted.sender,
            "after": after,
            "limit": limit,
            "channel": self._schema,
            "settled": settled_channel(self._schema),
            "inbox": self._inbox,
        }
        return self._connection.execute(self._text(text), values)

    def _text(self, text: str) -> bytes:
        return in_schema(text, self._schema).encode()
