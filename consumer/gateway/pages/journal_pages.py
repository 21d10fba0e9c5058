"""What pages read in the journal. No question takes longer than a page may."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from consumer.gateway.database import DatabaseThreads
from feedback.journal.connections import Connection
from feedback.operations import dead_letters, inspection, request_reads, request_search
from feedback.operations.bounded import TookTooLong, bounded
from feedback.operations.dead_letters import DeadLetterRef
from feedback.operations.follow_ups import FollowUps, follow_ups_of
from feedback.operations.inspection import NEWEST, LookedBack
from feedback.operations.request_reads import Row
from feedback.operations.request_search import Chosen, Found
from feedback.operations.statistics import Figures, figures, outcomes

T = TypeVar("T")

SEARCH: Final = 0.1
"""Seconds for a list, unless somebody asks for more."""
DEEP_SEARCH: Final = 8.0
ODD: Final = 0.08
"""For each question about what is odd."""
ODD_OFFSETS: Final = 0.05
"""For what became of offsets, which are asked for before."""
DEEP_ODD: Final = 4.0
ONE: Final = 1.0
"""For what has an index of its own."""
FIGURES: Final = 3.0
"""For each part of the figures of the journal as a whole."""
WITHIN: Final = 10.0
PATIENT_WITHIN: Final = 30.0
"""Seconds after which a question is given up, the time in which it waits for others included."""
AT_ONCE: Final = 100
"""Rows of a page."""
MOST_CHOSEN: Final = 10_000
"""Requests that are moved at once."""
MOST_LETTERS: Final = 1_000
"""Dead letters that are moved at once."""
MOST_EVENTS: Final = 200
"""Runs of a request that failed, and moves of it, that are shown: the latest."""
MOST_FOLLOW_UPS: Final = 50
"""Requests that one asked for, of those that are shown with it."""


class OverTime(NamedTuple):
    """How it went, in steps of so many seconds."""

    step: int
    minutes: int
    ended: list[Row]
    """at, type, done, other."""
    outcomes: list[Row]
    """In all of these minutes: type, state, code, n."""
    times: list[Row]
    """at, type, n, wait, run: seconds as [p50, p95]."""
    times_minutes: int
    """How many of the minutes `times` are of, as there was time for."""


class PageJournal(Protocol):
    """What pages ask. Each raises OncepoolError; TookTooLong where it had to be given up."""

    async def figures(self) -> Figures:
        """Of the journal as a whole."""

    async def over_time(self, minutes: int) -> OverTime:
        """How requests ended, and how long they took."""

    async def search(self, filters: Mapping[str, Any], *, deep: bool) -> Found:
        """A page of requests, the latest first."""

    async def chosen(self, filters: Mapping[str, Any]) -> list[Chosen]:
        """All that match, those made first; one more than MOST_CHOSEN where there are more."""

    async def named(self, ids: Sequence[str]) -> list[Chosen]:
        """Those of these ids that there are."""

    async def request(self, id: str, types: Sequence[str] | None = None) -> Row | None:
        """All of one, with its timeline, what it took the place of, and who asked for what.

        `took_over` is LookedBack, `follow_ups` FollowUps, of which those of `types` are shown.
        """

    async def dead(self, filters: Mapping[str, Any], limit: int, *, deep: bool) -> list[Row]:
        """Dead letters without headers and payloads, the latest first.

        Unless `deep`, what matches is looked for among the NEWEST of either kind.
        """

    async def chosen_dead(self, filters: Mapping[str, Any]) -> list[DeadLetterRef]:
        """Those that match, the oldest first, at most one more than MOST_LETTERS."""

    async def look(
        self, name: str, *arguments: Any, types: Sequence[str] | None = None
    ) -> list[Row]:
        """What the function of this name in feedback.operations.inspection lists."""

    async def look_back(
        self, name: str, *arguments: Any, types: Sequence[str] | None = None, seconds: float
    ) -> LookedBack:
        """The same of what is looked for in windows of time, for so many seconds."""


class JournalPages:
    """On the journal."""

    def __init__(
        self,
        threads: DatabaseThreads,
        patient: DatabaseThreads,
        counting: DatabaseThreads,
        schema: str,
    ) -> None:
        """`patient` are for searches that may take long, `counting` for figures of the whole."""
        self._threads = threads
        self._patient = patient
        self._counting = counting
        self._schema = schema

    async def figures(self) -> Figures:
        """As PageJournal has it."""

        def read(connection: Connection) -> Figures:
            with bounded(connection, FIGURES):
                return figures(connection, schema=self._schema)

        return await self._counting.run(read, WITHIN, again=True)

    async def over_time(self, minutes: int) -> OverTime:
        """As PageJournal has it."""

        def read(connection: Connection) -> OverTime:
            step = 60
            ended = inspection.ended_over_time(connection, minutes, step, schema=self._schema)
            since = datetime.now(UTC) - timedelta(minutes=minutes)
            with bounded(connection, FIGURES):
                states = outcomes(connection, since, schema=self._schema)
            times: list[Row] = []
            reached = 0
            for part in (1, 10, minutes):
                try:
                    times = inspection.times_over_time(connection, part, step, schema=self._schema)
                except TookTooLong:
                    break
                reached = part
            return OverTime(step, minutes, ended, states, times, reached)

        return await self._counting.run(read, WITHIN, again=True)

    async def search(self, filters: Mapping[str, Any], *, deep: bool) -> Found:
        """As PageJournal has it."""
        seconds = DEEP_SEARCH if deep else SEARCH
        return await self._run(
            lambda c: request_search.search(
                c, filters, AT_ONCE, seconds=seconds, schema=self._schema
            ),
            patient=deep,
        )

    async def chosen(self, filters: Mapping[str, Any]) -> list[Chosen]:
        """As PageJournal has it."""
        return await self._run(
            lambda c: request_search.select_some(
                c, filters, MOST_CHOSEN + 1, seconds=DEEP_SEARCH, schema=self._schema
            ),
            patient=True,
        )

    async def named(self, ids: Sequence[str]) -> list[Chosen]:
        """As PageJournal has it."""

        def read(connection: Connection) -> list[Chosen]:
            with bounded(connection, ONE):
                return request_search.select_named(connection, ids, schema=self._schema)

        return await self._run(read)

    async def request(self, id: str, types: Sequence[str] | None = None) -> Row | None:
        """As PageJournal has it."""

        def read(connection: Connection) -> Row | None:
            with bounded(connection, ONE):
                row = request_reads.show_request(
                    connection, id, schema=self._schema, most=MOST_EVENTS
                )
            if row is None:
                return None
            row["follow_ups"] = self._follow_ups(connection, id, types)
            if row["reference"] is None:
                return {**row, "took_over": None}
            try:
                took = inspection.superseded_by(
                    connection, id, row["created_at"], 50, schema=self._schema
                )
            except TookTooLong:
                took = LookedBack([], timedelta(0), whole=False)
            return {**row, "took_over": took}

        return await self._run(read)

    def _follow_ups(
        self, connection: Connection, id: str, types: Sequence[str] | None
    ) -> FollowUps:
        """An index has them, but of very many few may be of these types."""
        try:
            with bounded(connection, SEARCH):
                return follow_ups_of(
                    connection, id, MOST_FOLLOW_UPS, schema=self._schema, types=types
                )
        except TookTooLong:
            return FollowUps(None, [], more=True)

    async def dead(self, filters: Mapping[str, Any], limit: int, *, deep: bool) -> list[Row]:
        """As PageJournal has it."""

        def read(connection: Connection) -> list[Row]:
            with bounded(connection, DEEP_SEARCH if deep else SEARCH):
                return dead_letters.list_dead_heads(
                    connection, filters, limit, schema=self._schema, newest=None if deep else NEWEST
                )

        return await self._run(read, patient=deep)

    async def chosen_dead(self, filters: Mapping[str, Any]) -> list[DeadLetterRef]:
        """As PageJournal has it."""

        def read(connection: Connection) -> Sequence[DeadLetterRef]:
            with bounded(connection, DEEP_SEARCH):
                return dead_letters.select_dead(
                    connection, filters, schema=self._schema, most=MOST_LETTERS + 1
                )

        return list(await self._run(read, patient=True))

    async def look(
        self, name: str, *arguments: Any, types: Sequence[str] | None = None
    ) -> list[Row]:
        """As PageJournal has it."""
        ask: Callable[..., list[Row]] = getattr(inspection, name)
        return await self._run(
            lambda c: ask(c, *arguments, types=types, schema=self._schema, seconds=ODD)
        )

    async def look_back(
        self, name: str, *arguments: Any, types: Sequence[str] | None = None, seconds: float
    ) -> LookedBack:
        """As PageJournal has it."""
        ask: Callable[..., LookedBack] = getattr(inspection, name)
        return await self._run(
            lambda c: ask(c, *arguments, types=types, schema=self._schema, seconds=seconds),
            patient=seconds > ODD,
        )

    async def _run(self, read: Callable[[Connection], T], *, patient: bool = False) -> T:
        if patient:
            return await self._patient.run(read, PATIENT_WITHIN, again=True)
        return await self._threads.run(read, WITHIN, again=True)
