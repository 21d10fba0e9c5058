"""The executor's statements on a journal in memory, in place of a database's."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from feedback.contract.record import Record, is_read_again, place_text
from feedback.contract.states import State
from feedback.journal import done_rows
from feedback.journal.coalescing import Arrival, Coalescing, CoalescingDecision, Waiter, judge
from feedback.journal.database_errors import Overtaken
from feedback.journal.dead_letters import DeadLetter
from feedback.journal.rows import FailedRun, RequestRow, StoredRequest
from feedback.journal.writer import CLOSED, COLUMNS, OPEN_COLUMNS, JournalWriter
from processing.testing.memory_journal import MemoryJournal, Row

_POSTGRES_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
_ROW: Final = tuple(
    name for name in RequestRow.__dataclass_fields__ if name not in ("keeps_payload", "asked_by")
)
_FINISHED: Final = (
    "state", "code", "attempt", "used", "run", "crashes", "fingerprint", "result", "error",
    "reason", "finished_at", "payload", "headers", "due_at", "not_before", "window_start",
    "coalesce_key", "lost_claims", "own_fingerprint",
)  # fmt: skip
"""Columns that finishing a claimed row changes."""
_UPDATED: Final = (
    *_FINISHED, "key", "reference", "topic", "partition", "kafka_offset", "superseded_by",
    "status_ttl",
)  # fmt: skip
"""Columns that an update changes: those of the statement update_row."""
_TAKEN_OVER: Final = frozenset(
    {"ce_expirytime", "ce_replyto", "ce_notbefore", "oncepool-hold-open"}
)
"""Headers of a copy that a row takes over which keeps its payload: as update_row has it."""
_CALLED: Final = (
    "state", "code", "result", "error", "reason", "payload", "headers", "crashes", "finished_at",
    "attempt", "used", "not_before", "due_at",
)  # fmt: skip
"""Columns that the end of a call outside changes."""


class MemoryCoalescing(Coalescing):
    """The rows that wait under a reference, in memory."""

    def __init__(self, journal: MemoryJournal) -> None:
        self._journal = journal

    def lock(self, cursor: Any, arrivals: Sequence[Arrival], own: Sequence[str]) -> None:
        """Nobody else is at work."""

    def settle(
        self, cursor: Any, arrivals: Sequence[Arrival], now: datetime, ended: datetime
    ) -> CoalescingDecision:
        journal, keys = self._journal, {arrival.key for arrival in arrivals}
        waiters = [
            Waiter(
                row["id"], row["type"], row["coalesce_key"], row["produced_at"], row["created_at"],
                row["window_start"] or row["created_at"], row["run"], row["attempt"],
                row["fingerprint"], row["own_fingerprint"], row["status_ttl"], row["headers"],
            )
            for row in journal.rows.values()
            if row["state"] == State.WAITING and row["token"] is None
            and (row["type"], row["coalesce_key"]) in keys
        ]  # fmt: skip
        started = {key: one for key, one in journal.started.items() if key in keys}
        verdict = judge(arrivals, waiters, started, now)
        for waiter, winner in verdict.ousted:
            journal.put(
                {
                    "id": waiter.id, "state": State.SUPERSEDED, "code": State.SUPERSEDED.value,
                    "superseded_by": winner, "due_at": None, "finished_at": ended,
                },
                now,
            )  # fmt: skip
        return verdict


class MemoryWriter(JournalWriter):
    """The executor's statements, on a journal in memory."""

    def __init__(self, journal: MemoryJournal) -> None:
        self._journal = journal

    def find(self, cursor: Any, ids: Sequence[str]) -> dict[str, StoredRequest]:
        rows = self._journal.rows
        return {name: stored(rows[name]) for name in ids if name in rows}

    def insert_done(self, cursor: Any, rows: Sequence[bytes]) -> None:
        for row in rows:
            self._journal.put(done_row_of(row), _now())

    def insert(self, cursor: Any, rows: Iterable[RequestRow]) -> None:
        for row in rows:
            values = columns(row)
            names = COLUMNS if row.state in CLOSED else OPEN_COLUMNS
            self._journal.put({name: values[name] for name in names}, _now())

    def insert_missing(self, cursor: Any, rows: Iterable[RequestRow]) -> set[str]:
        new = [row for row in rows if row.id not in self._journal.rows]
        self.insert(cursor, new)
        for row in new:
            self._journal.put({"id": row.id, "asked_by": row.asked_by}, _now())
        return {row.id for row in new}

    def update(self, cursor: Any, changes: Iterable[tuple[RequestRow, StoredRequest]]) -> None:
        for row, was in changes:
            stands = self._guarded(row.id, was)
            if row.state is State.DONE and stands["state"] == State.WAITING:
                self._put(row, _FINISHED, self._kept(row, stands))
                continue
            kept = self._kept(row, stands)
            if row.reference is None:
                kept["reference"] = stands["reference"]
            if row.keeps_payload:
                kept |= {name: stands[name] for name in ("payload", "own_fingerprint")}
                kept["headers"] = _merged(stands["headers"], columns(row)["headers"])
            self._put(row, _UPDATED, kept)

    def delete(self, cursor: Any, row: RequestRow, was: StoredRequest) -> None:
        self._guarded(row.id, was)
        self._journal.drop(row.id)

    def add_attempts(self, cursor: Any, attempts: Sequence[FailedRun]) -> None:
        known = {(one["request_id"], one["run"]) for one in self._journal.attempts}
        if not self._journal.dead:
            self._journal.attempts += [
                one._asdict() for one in attempts if (one.request_id, one.run) not in known
            ]

    def lock(self, cursor: Any, ids: Iterable[str]) -> None:
        """Nobody else is at work."""

    def add_resends(self, cursor: Any, copies: Mapping[str, Record]) -> None:
        for name, record in copies.items():
            row, place = self._journal.rows[name], place_text(record)
            own = f"{row['topic']}/{row['partition']}/{row['kafka_offset']}"
            if place not in (own, row["resent_from"]) and not is_read_again(record):
                resends = row["resends"] + 1
                self._journal.put({"id": name, "resends": resends, "resent_from": place}, _now())

    def add_letter(self, cursor: Any, letter: DeadLetter) -> None:
        self._journal.add_letter(letter, _now())

    def claim(
        self, cursor: Any, row: RequestRow, was: StoredRequest | None, token: str, lease: float
    ) -> bool:
        if was is not None:
            self._guarded(row.id, was)
        now = _now()
        claimed = {
            "state": State.RUNNING, "code": "claimed", "effect": "external", "token": token,
            "lease_until": now + timedelta(seconds=lease), "due_at": None, "not_before": None,
            "finished_at": None,
        }  # fmt: skip
        self._journal.put(columns(row) | claimed, now)
        return True

    def finish_claim(self, cursor: Any, row: RequestRow, token: str) -> int:
        stands = self._journal.rows.get(row.id)
        open_ = (State.RUNNING, State.IN_DOUBT)
        if self._journal.dead:
            return row.run
        if stands is None or stands["token"] != token or stands["state"] not in open_:
            raise Overtaken(row.id)
        again = stands["state"] == State.IN_DOUBT and row.state in (State.WAITING, State.FAILED)
        kept: Row = {
            "run": stands["run"] + again, "lease_until": None, "token": token, "lost_claims": 0,
        }  # fmt: skip
        if row.state is State.WAITING:
            kept["token"] = None
        self._put(row, _CALLED, kept)
        run: int = kept["run"]
        return run

    def stays_in_doubt(self, cursor: Any, request_id: str, token: str) -> None:
        stands = self._journal.rows.get(request_id)
        if stands and (stands["state"], stands["token"]) == (State.IN_DOUBT, token):
            self._journal.put({"id": request_id, "lost_claims": 0}, _now())

    def _put(self, row: RequestRow, names: Sequence[str], others: Row) -> None:
        """Writes some columns of a row, and `others` as they are."""
        values = columns(row)
        self._journal.put({name: values[name] for name in ("id", *names)} | others, _now())

    @staticmethod
    def _kept(row: RequestRow, stands: Row) -> Row:
        """A fingerprint that nobody could make leaves the one that is there."""
        free = {"token": None, "lease_until": None}
        return free if row.fingerprint else free | {"fingerprint": stands["fingerprint"]}

    def _guarded(self, name: str, was: StoredRequest) -> Row:
        stands = self._journal.rows.get(name)
        guard = (was.run, was.state, was.token)
        if stands is None or (stands["run"], stands["state"], stands["token"]) != guard:
            raise Overtaken(name)
        return stands


def stored(row: Row) -> StoredRequest:
    """A row as the look-up finds it."""
    shown = row["fingerprint"] is None or row["own_fingerprint"]
    hidden = {} if shown else {"payload": None, "headers": None}
    return StoredRequest(**{name: (row | hidden)[name] for name in StoredRequest._fields})


def _merged(own: str | None, copy: str | None) -> str:
    """The headers of a row, with what it takes over of a copy."""
    kept = [one for one in json.loads(own or "[]") if one[0] not in _TAKEN_OVER]
    return json.dumps(kept + [one for one in json.loads(copy or "[]") if one[0] in _TAKEN_OVER])


def columns(row: RequestRow) -> Row:
    """A row that is to be written, by column."""
    values = {name: getattr(row, name) for name in _ROW}
    for name in ("result", "headers"):
        values[name] = None if values[name] is None else values[name].decode()
    return values | {"state": State(row.state), "due_at": row.not_before}


def done_row_of(data: bytes) -> Row:
    """The row that `done_rows.done_row` wrote for COPY."""
    fields: list[bytes | None] = []
    place = 2
    while place < len(data):
        (size,) = struct.unpack_from("!i", data, place)
        place += 4
        fields.append(None if size < 0 else data[place : place + size])
        place += max(size, 0)
    found = dict(zip(done_rows.COLUMNS, fields, strict=True))
    row: Row = {
        name: cast("bytes", found[name]).decode() for name in ("id", "type", "code", "topic")
    }
    row |= {name: found[name] for name in ("fingerprint", "key")}
    row["own_fingerprint"] = found["own_fingerprint"] == b"\1"
    result = found["result"]
    row["result"] = None if result is None else result[1:].decode()
    row["state"], row["effect"] = State.DONE, "transaction"
    row["partition"] = struct.unpack("!i", cast("bytes", found["partition"]))[0]
    row["kafka_offset"] = struct.unpack("!q", cast("bytes", found["kafka_offset"]))[0]
    for name in ("produced_at", "finished_at"):
        micros = struct.unpack("!q", cast("bytes", found[name]))[0]
        row[name] = _POSTGRES_EPOCH + timedelta(microseconds=micros)
    return row


def _now() -> datetime:
    return datetime.now(UTC)
