"""A journal in memory, for tests: rows as the tables have them, and transactions on them.

Rows are dicts that are replaced and never changed, so that a transaction is undone by putting the
old ones back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from feedback.contract.record import NOWHERE, Record, claim_token
from feedback.contract.schedule import Schedule, StoredSchedule, TickRequest, decide, tick_of
from feedback.contract.states import MOST_LOST_CLAIMS, SCHEDULED, DeadLetterReason, State
from feedback.journal.claimed_rows import DoubtfulRow, record_of
from feedback.journal.claims import LEASE
from feedback.journal.coalescing import Key, Started
from feedback.journal.dead_letters import DeadLetter
from feedback.journal.doubts import LONGEST_WAIT
from feedback.journal.rows import headers_json
from feedback.journal.schedules import TOPIC, taken_letter
from processing.ipc.frames import NO_ORDER
from processing.settings import CHECK_AFTER

INSTANCE: Final = "sandbox"
_CHECK_AFTER: Final = timedelta(seconds=CHECK_AFTER)
Row = dict[str, Any]
NEW_ROW: Final[Mapping[str, Any]] = {
    "attempt": 1, "run": 1, "crashes": 0, "resends": 0, "used": 0, "lost_claims": 0,
    "own_fingerprint": False, "effect": "transaction",
    **dict.fromkeys(
        ("fingerprint", "result", "error", "reason", "key", "reference", "payload", "headers",
         "finished_at", "not_before", "due_at", "window_start", "coalesce_key", "superseded_by",
         "status_ttl", "token", "lease_until", "resent_from", "asked_by")
    ),
}  # fmt: skip
"""What a row says whose writer says nothing else."""


class MemoryJournal:
    """The tables, and what the maintenance process does with them."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        """By request id."""
        self.attempts: list[Row] = []
        """Runs that did not succeed."""
        self.letters: list[Row] = []
        """Messages that could not become a request, or conflict with a stored one."""
        self.started: dict[Key, Started] = {}
        """The newest request of each reference that was started."""
        self.schedules: dict[str, StoredSchedule] = {}
        self.dead = False
        """Whoever writes is dead: nothing of what it does from now on happens."""
        self._before: tuple[dict[str, Row], list[Row], list[Row]] | None = None
        self._order = 0

    # Transactions

    def begin(self) -> None:
        """From here on all may be undone."""
        if not self.dead:
            self._before = (dict(self.rows), list(self.attempts), list(self.letters))

    def commit(self) -> None:
        """What was written since begin() stays."""
        if not self.dead:
            self._before = None

    def rollback(self) -> None:
        """Undoes what was written since begin()."""
        if self._before is not None and not self.dead:
            self.rows, self.attempts, self.letters = self._before
        self._before = None

    @property
    def changed(self) -> bool:
        """Whether anything was written since begin()."""
        before = self._before
        return before is not None and before != (self.rows, self.attempts, self.letters)

    def kill(self) -> None:
        """The worker that writes dies here, and with it its open transaction."""
        self.rollback()
        self.dead = True

    # Rows

    def put(self, row: Row, now: datetime) -> None:
        """Writes a row of a new id, or what of a row changes."""
        if self.dead:
            return
        stands = self.rows.get(row["id"]) or {**NEW_ROW, "created_at": now}
        self.rows[row["id"]] = {**stands, **row}

    def drop(self, request_id: str) -> None:
        """Deletes a row and its timeline."""
        if not self.dead:
            self.rows.pop(request_id, None)
            self.attempts = [one for one in self.attempts if one["request_id"] != request_id]

    # Dead letters

    def add_letter(self, letter: DeadLetter, now: datetime) -> None:
        """Keeps a message that cannot be a request, once; so a conflict that is sent again."""
        row = letter.columns() | {"request_id": letter.request_id, "at": now}
        sames = [("topic", "partition", "offset", "produced")]
        if letter.reason is DeadLetterReason.CONFLICT:
            sames.append(("request_id", "reason", "detail", "payload"))
        known = any(all(one[n] == row[n] for n in same) for one in self.letters for same in sames)
        if not known and not self.dead:
            self.letters.append(row | {"id": len(self.letters) + 1})

    # The waiting queue

    def due_at(self) -> datetime | None:
        """When the first row that waits is due."""
        due = [row["due_at"] for row in self.rows.values() if row["state"] == State.WAITING]
        return min(due, default=None)

    def claim_next(self, now: datetime) -> Record | None:
        """Claims the row that has been due for longest; None where none is due."""
        waiting = [r for r in self.rows.values() if r["state"] == State.WAITING]
        due = [row for row in waiting if row["due_at"] <= now]
        if not due:
            return None
        row = min(due, key=lambda one: (one["due_at"], one["created_at"], one["id"]))
        self._order += 1
        until = now + timedelta(seconds=LEASE)
        self.put(
            {
                "id": row["id"], "token": claim_token(INSTANCE, self._order),
                "run": row["run"] + 1, "lease_until": until, "due_at": until,
                "lost_claims": row["lost_claims"] + (row["token"] is not None),
            },
            now,
        )  # fmt: skip
        if row["coalesce_key"] is not None:
            self._note_started(row)
        return _record(row, self._order)

    def release(self, request_id: str, now: datetime) -> None:
        """Gives a claimed row back."""
        self.put({"id": request_id, "token": None, "lease_until": None, "due_at": now}, now)

    def _note_started(self, row: Row) -> None:
        key = (row["type"], row["coalesce_key"])
        known = self.started.get(key)
        begun = Started(row["id"], row["produced_at"], row["created_at"])
        if known is None or known.newness <= begun.newness:
            self.started[key] = begun

    # Requests in doubt

    def asked_at(self, types: Collection[str]) -> datetime | None:
        """When the first one of these types is in doubt for long enough to ask its check."""
        return min((_asked_at(row) for row in self._doubts(types)), default=None)

    def ask_next(self, types: Collection[str], now: datetime) -> Record | None:
        """The one of them to ask about now, if any; the next time is after twice as long."""
        due = [row for row in self._doubts(types) if _asked_at(row) <= now]
        if not due:
            return None
        row = min(due, key=lambda one: (_asked_at(one), one["id"]))
        longest = timedelta(seconds=LONGEST_WAIT)
        pause = min(max(now - row["finished_at"], _CHECK_AFTER), longest)
        taken = {"id": row["id"], "lost_claims": row["lost_claims"] + 1, "due_at": now + pause}
        self.put(taken, now)
        return _record(row, NO_ORDER)

    def _doubts(self, types: Collection[str]) -> list[Row]:
        return [
            row for row in self.rows.values()
            if row["state"] == State.IN_DOUBT and row["type"] in types
            and row["lost_claims"] < MOST_LOST_CLAIMS
        ]  # fmt: skip

    # What comes by the clock

    def tick(self, schedules: Mapping[str, Schedule], now: datetime) -> None:
        """Makes requests of what is due; dead letters, where another has a tick's id."""
        due: list[TickRequest] = []
        for name, schedule in schedules.items():
            decision = decide(schedule, self.schedules.get(name), now, watched=timedelta())
            self.schedules[name] = StoredSchedule(
                name, schedule.type, schedule.cron, schedule.tz, schedule.missed,
                decision.decided_until, now, paused=False,
            )  # fmt: skip
            due += [tick_of(schedule, at) for at in decision.ticks]
        for tick in due:
            stands = self.rows.get(tick.id)
            if stands is None:
                self._put_tick(tick, now)
            elif stands["topic"] != TOPIC or stands["produced_at"] != tick.at:
                self.add_letter(taken_letter(tick), now)

    def _put_tick(self, tick: TickRequest, now: datetime) -> None:
        self.put(
            {
                "id": tick.id, "type": tick.type, "state": State.WAITING, "code": SCHEDULED,
                "topic": TOPIC, "partition": NOWHERE, "kafka_offset": NOWHERE, "run": 0,
                "produced_at": tick.at, "not_before": now, "due_at": now,
                "payload": tick.payload, "headers": headers_json(tick.headers).decode(),
            },
            now,
        )  # fmt: skip

    def next_tick(self, schedules: Mapping[str, Schedule], now: datetime) -> datetime | None:
        """When the next one is due."""
        known = [(one, self.schedules.get(name)) for name, one in schedules.items()]
        times = [decide(one, found, now, watched=timedelta()).again_at for one, found in known]
        return min((at for at in times if at is not None), default=None)


def _asked_at(row: Row) -> datetime:
    """When the check of a row in doubt is to be asked; as the statement `doubts_to_ask` has it."""
    at: datetime = row["due_at"] or row["finished_at"] + _CHECK_AFTER
    return at


def _record(row: Row, order: int) -> Record:
    return record_of(DoubtfulRow(*(row[name] for name in DoubtfulRow._fields)), order)
