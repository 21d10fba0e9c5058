"""The journal of a simulated service: rows, claims, attempts, and references of which one waits.

What the product decides without I/O is decided by its own code: what becomes of a run (`decide`,
`lost`), who waits of those with one reference (`judge`), how a claim is shared out between types
(`share_out`, `TypeTurns`), which lost claim is one too many (`verdict_of`), whether a message has
made a row (`made_by`). What statements decide (sql/claims.sql, releases.sql, parking.sql) is
written anew here.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from feedback.contract.record import (
    HEADERS,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    TOPIC,
    TYPE,
    Record,
    is_due,
    is_read_again,
)
from feedback.contract.states import COALESCING, HANDLER_ERROR, OK, PARKED, RETRY, State
from feedback.contract.times import later, moment
from feedback.journal.claimed_rows import verdict_of
from feedback.journal.claims import LEASE, share_out
from feedback.journal.coalescing import Arrival, Started, Waiter, judge
from feedback.journal.comparison import made_by
from feedback.journal.type_turns import TypeTurns
from feedback.status.status import StatusFields, StatusWrite
from processing.handlers.outcomes import Outcome, Retry
from processing.handlers.retry_policy import RetryPolicy
from processing.ipc.frames import WantRows
from processing.worker.interruption import lost
from processing.worker.retry_decision import decide
from tests.model.pool_rules import Violation

MERGES = "merges"
"""The type whose requests wait for newer ones of their reference."""
WINDOW, WINDOW_CAP = 3.0, 12.0
POLICIES = {
    "again": RetryPolicy(attempts=3, base=2.0, cap=20.0),
    MERGES: RetryPolicy(attempts=2, base=2.0),
}
ONCE = RetryPolicy()
FAILING = {"again": 0.6, "fails": 0.5, MERGES: 0.15}
"""Share of their runs that fail."""
DONE = Outcome(State.DONE, OK)
FAILED = Outcome(State.FAILED, HANDLER_ERROR)
HELD = Outcome(State.WAITING, COALESCING)


def id_of(record: Record) -> str:
    """The request's id."""
    return ((record[HEADERS] or [])[0][1] or b"").decode()


def reference_of(record: Record) -> str | None:
    """What it is about, where it coalesces."""
    headers = record[HEADERS] or []
    return (headers[1][1] or b"").decode() if len(headers) > 1 else None


@dataclass(slots=True)
class Row:
    """A request in the journal."""

    record: Record
    created_at: datetime
    reference: str | None = None
    state: State = State.WAITING
    code: str = OK
    due: float = 0.0
    token: tuple[int, int] | None = None
    """Instance and order of its claim."""
    lease_until: float = 0.0
    lost_claims: int = 0
    crashes: int = 0
    run: int = 0
    used: int = 0
    """Attempts."""
    tried: int = 0
    """Runs of the handler that failed and count, by the model's own count."""
    held: bool = False
    """It has waited for newer ones."""
    window_start: datetime | None = None
    superseded_by: str | None = None

    @property
    def id(self) -> str:
        return id_of(self.record)

    @property
    def topic(self) -> str:
        return self.record[TOPIC]

    @property
    def partition(self) -> int:
        return self.record[PARTITION]

    @property
    def kafka_offset(self) -> int:
        return self.record[OFFSET]

    @property
    def produced_at(self) -> datetime:
        return moment(self.record[TIMESTAMP] / 1000)

    @property
    def newness(self) -> tuple[datetime, datetime, str]:
        return self.produced_at, self.created_at, self.id

    @property
    def kind(self) -> str:
        return self.record[TYPE] or ""


class Journal:
    """Its truth, and what is told of it."""

    def __init__(
        self,
        chance: random.Random,
        happened: Counter[str],
        clock: Callable[[], float],
        tell: Callable[[int, StatusWrite], None],
    ) -> None:
        """`tell`: an instance has a status to write."""
        self._random = chance
        self._happened = happened
        self._clock = clock
        self._tell = tell
        self.rows: dict[str, Row] = {}
        self.waiting: dict[str, Row] = {}
        self.started: dict[str, Row] = {}
        """Reference -> the newest that was started."""
        self.effects: Counter[str] = Counter()
        self.said: dict[tuple[str, str, int], int] = {}
        """Every (id, state, run) that was true once, and which of all words it was last."""
        self._words = 0
        self._last: dict[str, Row] = {}
        """Reference -> the last that was done."""
        self._created = 0

    # Looking up

    def stands(self, record: Record, row: Row, *, suspect: bool = False) -> bool:
        """Whether the row answers a message: nothing runs."""
        if row.state is not State.FAILED:
            return True
        place = (record[TOPIC], record[PARTITION], record[OFFSET])
        if suspect and place == (row.topic, row.partition, row.kafka_offset):
            return True
        return made_by(row, place, again=is_read_again(record))

    # Ends of runs

    def run(self, number: int, record: Record) -> bool:
        """A handler's transaction is committed with what it came to; whether it has its effect."""
        row = self.rows.get(id_of(record))
        kind, draw = record[TYPE] or "", self._random.random()
        if kind == MERGES and not (row is not None and row.held):
            outcome = HELD
        elif draw >= FAILING.get(kind, 0.0):
            outcome = DONE
        elif kind == "again" and draw < 0.1:
            outcome = Outcome(State.FAILED, RETRY, retry=Retry(after=7, counts=False))
        else:
            outcome = FAILED
        self.end(number, record, outcome)
        return outcome is DONE

    def end(self, number: int, record: Record, outcome: Outcome) -> None:
        """What became of a run is written."""
        now, name = moment(self._clock()), id_of(record)
        row = self.rows.get(name)
        known = row is not None
        if row is None:
            row = self._new(record)
        elif not is_due(record):
            row.record = record
        row.reference = reference_of(row.record)
        final = replace(outcome, due=now) if outcome.state is State.WAITING else outcome
        row.run += not is_due(record) and outcome is not HELD
        if outcome is HELD:
            row.held = True
        else:
            policy = POLICIES.get(row.kind, ONCE)
            if outcome.state is not State.WAITING:
                final, row.used = decide(outcome, policy, row.used, now, self._random.random)
            self._count(row, outcome, final, policy)
        row.code, row.token, row.superseded_by = final.code, None, None
        row.state = final.state
        if final.due is not None:
            row.due = final.due.timestamp()
        if row.state is State.WAITING and row.reference is not None:
            self._coalesce(number, row, now, known=known, held=outcome is HELD)
        if row.state is State.DONE:
            self._done(row)
        self._put(number, row)

    def lose(self, number: int, record: Record, verdict: str) -> None:
        """A suspect's verdict is written."""
        self.end(number, record, lost(verdict))

    def _count(self, row: Row, outcome: Outcome, final: Outcome, policy: RetryPolicy) -> None:
        """No request is tried more often than its type says."""
        row.tried += outcome.state is State.FAILED and (outcome.retry is None)
        if policy.attempts > 1:
            if row.tried > policy.attempts:
                raise Violation(f"{row.id} was tried {row.tried} times")
            self._happened["retries"] += final.state is State.WAITING
            self._happened["tried in vain"] += final.state is State.DEAD

    def _done(self, row: Row) -> None:
        self.effects[row.id] += 1
        if self.effects[row.id] > 1:
            raise Violation(f"{row.id} has two effects")
        if row.reference is not None:
            before = self._last.get(row.reference)
            if before is not None and before.newness > row.newness:
                raise Violation(
                    f"{row.id} of {row.reference} is done after {before.id}, a newer one"
                )
            self._last[row.reference] = row

    def _new(self, record: Record) -> Row:
        self._created += 1
        created = later(moment(self._clock()), self._created * 1e-6)
        return Row(record, created, reference_of(record))

    def _put(self, number: int, row: Row) -> None:
        self.rows[row.id] = row
        if row.state is State.WAITING:
            self.waiting[row.id] = row
            if row.reference is not None and row.token is None:
                others = [o.id for o in self._of(row) if o.token is None]
                if others:  # the unique index says no
                    raise Violation(f"{row.id} and {others} wait for {row.reference}")
        else:
            self.waiting.pop(row.id, None)
        self.tell(number, row)

    def tell(self, number: int, row: Row) -> None:
        """What a row says is written to Redis, or on its way there."""
        self._words += 1
        self.said[row.id, row.state, row.run] = self._words
        now = moment(self._clock())
        retry_at = moment(row.due) if row.state is State.WAITING else None
        status = StatusFields(
            row.id, row.kind, row.state, row.run, row.code, row.used, at=now, retry_at=retry_at,
            superseded_by=row.superseded_by,
        )  # fmt: skip
        self._tell(number, StatusWrite.of(status, final=row.state is State.DONE))

    # Parking and giving back

    def park(self, number: int, record: Record) -> None:
        """What has not started is left to others."""
        row = self.rows.get(id_of(record))
        if row is None:
            row = self._new(record)
            row.code, row.due = PARKED, self._clock()
            row.reference = None  # nobody has read it
            self._put(number, row)
        elif not self.stands(record, row):
            row.record, row.state, row.used, row.tried = record, State.WAITING, 0, 0
            row.run, row.code, row.due = row.run + 1, PARKED, self._clock()
            self.release(number, row)

    def release(self, number: int, row: Row) -> None:
        """A claim is given back: the newest that waits for its reference is what stays."""
        row.token, row.due = None, max(row.due, self._clock())
        newer = [o for o in self._of(row) if o.newness > row.newness]
        if newer:
            self._supersede(number, row, max(newer, key=lambda o: o.newness))
            return
        for other in self._of(row):
            if other.token is None:
                self._supersede(number, other, row)
        self._put(number, row)

    # References

    def _of(self, row: Row) -> list[Row]:
        """The others that wait for its reference."""
        if row.reference is None:
            return []
        return [
            other
            for other in self.waiting.values()
            if other.reference == row.reference and other is not row
        ]

    def _supersede(self, number: int, row: Row, winner: Row) -> None:
        self._happened["superseded"] += 1
        row.state, row.code, row.token = State.SUPERSEDED, "superseded", None
        row.superseded_by = winner.id
        self._put(number, row)

    def _coalesce(self, number: int, row: Row, now: datetime, *, known: bool, held: bool) -> None:
        key = (MERGES, row.reference or "")
        waiters = [_waiter(other, key) for other in self._of(row) if other.token is None]
        begun = self.started.get(key[1])
        started = (
            {} if begun is None else {key: Started(begun.id, begun.produced_at, begun.created_at)}
        )
        window, cap = (WINDOW, WINDOW_CAP) if held else (0.0, 0.0)
        created = row.created_at if known else None
        arrival = Arrival(row.id, key, row.produced_at, window, cap, created)
        verdict = judge([arrival], waiters, started, now)
        if row.id in verdict.superseded:
            self._happened["superseded"] += 1
            self._happened["came too late for its reference"] += 1
            row.state, row.code = State.SUPERSEDED, "superseded"
            row.superseded_by = verdict.superseded[row.id]
            return
        due, row.window_start = verdict.due[row.id]
        row.due = max(row.due, due.timestamp())
        for waiter, _ in verdict.ousted:
            self._supersede(number, self.rows[waiter.id], row)

    # Claims, as sql/claims.sql has them

    def claim(self, number: int, want: WantRows, turns: TypeTurns) -> list[tuple[Row, str | None]]:
        """Claims rows that are due, with the verdict on each."""
        now, due = self._clock(), {}
        for row in sorted(self.waiting.values(), key=lambda r: (r.due, r.created_at)):
            free = row.lease_until <= now if row.token is not None else row.due <= now
            if free and row.kind not in want.paused and not self._is_behind(row, now):
                due.setdefault(row.kind, []).append(row)
        room = {kind: want.limits.get(kind, want.most) for kind in turns.in_line(due)}
        shares = share_out(want.most, room)
        turns.had(shares)
        rows = [row for kind, share in shares.items() for row in due[kind][:share]]
        for row in rows:
            row.lost_claims += row.token is not None
            row.token, row.lease_until = (number, want.order), now + LEASE
            row.run += 1
        kept = self._settle_references(number, rows, now)
        found: Any = [(row, verdict_of(row)) for row in kept]  # it asks for two of its columns
        return found

    def _is_behind(self, row: Row, now: float) -> bool:
        claimed = [other for other in self._of(row) if other.token is not None]
        return any(o.lease_until > now or o.newness > row.newness for o in claimed)

    def _settle_references(self, number: int, rows: list[Row], now: float) -> list[Row]:
        kept = [row for row in rows if row.reference is None]
        ours = [row for row in rows if row.reference is not None]
        for row in ours:
            begun = self.started.get(row.reference or "")
            if begun is None or begun.newness < row.newness:
                self.started[row.reference or ""] = row
        for row in ours:
            begun = self.started[row.reference or ""]
            others = self._of(row)
            if begun is not row and begun.newness > row.newness:
                self._supersede(number, row, begun)
            elif any(self._holds_up(other, row, now) for other in others):
                self._happened["claimed in vain"] += 1
                self.release(number, row)
            else:
                for other in others:
                    expired = other.token is not None and other.lease_until <= now
                    if expired and other.newness < row.newness:
                        self._happened["superseded while its claim had run out"] += 1
                        self._supersede(number, other, row)
                kept.append(row)
        return kept

    @staticmethod
    def _holds_up(other: Row, row: Row, now: float) -> bool:
        if other.newness > row.newness:
            return True
        return other.token not in (None, row.token) and other.lease_until > now

    # The end

    def check(self) -> None:
        """What is done has its effect and nothing else has; of each reference the newest ran."""
        newest: dict[str, Row] = {}
        for name, row in self.rows.items():
            if (row.state is State.DONE) != (self.effects[name] == 1):
                raise Violation(f"{name} is {row.state}, effects: {self.effects}")
            if row.reference is not None and (
                row.reference not in newest or row.newness > newest[row.reference].newness
            ):
                newest[row.reference] = row
            if row.state is State.SUPERSEDED:
                winner = self.rows.get(row.superseded_by or "")
                if winner is None or winner.newness <= row.newness:
                    raise Violation(f"{name} is superseded by {row.superseded_by}, which is older")
        for reference, row in newest.items():
            if row.state is State.SUPERSEDED:
                raise Violation(f"{row.id}, the newest of {reference}, never ran")


def _waiter(row: Row, key: tuple[str, str]) -> Waiter:
    begun = row.window_start or row.created_at
    return Waiter(
        row.id, *key, row.produced_at, row.created_at, begun, row.run, row.used, None,
        own_fingerprint=False, status_ttl=None,
    )  # fmt: skip
