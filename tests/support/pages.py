"""The gateway's pages without services: what they show, and what is asked through them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from consumer.admin.lag import UnfinishedOffsets
from consumer.admin.move_outcome import MoveOutcome
from consumer.admin.moving import Ending
from consumer.admin.overview import Look
from consumer.gateway.app import create_app
from consumer.gateway.bulk_moves import BulkAction
from consumer.gateway.limits_board import LimitsSeen
from consumer.gateway.pages.journal_pages import OverTime
from consumer.gateway.pages.services import Whole, running_in
from consumer.gateway.pages.sessions import Sessions
from consumer.gateway.pages.snapshots import Snapshot
from consumer.gateway.parts import PageParts
from feedback.contract.record import Headers
from feedback.errors import OncepoolError
from feedback.journal.rows import headers_json
from feedback.operations.bounded import TookTooLong
from feedback.operations.dead_letters import DeadLetterRef
from feedback.operations.explanations import Refusal
from feedback.operations.follow_ups import FollowUps
from feedback.operations.inspection import LookedBack
from feedback.operations.request_actions import By, Runs
from feedback.operations.request_search import Chosen, Found
from feedback.operations.statistics import Figures
from processing.cluster.limits import Changes, ClusterLimits, TypeLimit, check
from tests.support.gateway import AT, GatewayBench

NASTY = "<script>alert(1)</script>&'\""
TRACE = "0af7651916cd43dd8448eb211c80319c"


def request_row(id: str, state: str = "dead", **fields: Any) -> dict[str, Any]:
    """A row as show_request has it."""
    row: dict[str, Any] = {
        "id": id, "type": "a.b", "state": state, "code": "handler_error", "attempt": 3, "run": 4,
        "resends": 2, "crashes": 1, "lost_claims": 0, "fingerprint": b"\x01\x02", "result": None,
        "error": f"Traceback\nValueError: {NASTY}", "reason": None, "key": b"k\xff",
        "reference": "ref", "superseded_by": None, "not_before": None, "due_at": None, "used": 3,
        "effect": "transaction", "coalesce_key": None, "status_ttl": None, "token": None,
        "lease_until": None, "asked_by": None, "topic": "requests", "partition": 0,
        "kafka_offset": 17,
        "produced_at": AT, "created_at": AT, "finished_at": AT + timedelta(seconds=5),
        "headers": _stored([("traceparent", f"00-{TRACE}-b7ad6b7169203331-01".encode()),
                                 ("ce_token", b"secret")]),
        "payload": b'{"amount": 5, "card": {"card_number": "4111", "note": "n"}}',
        "attempts": [{"run": 1, "code": "timeout", "error": "took too long", "started_at": AT,
                      "ended_at": AT + timedelta(seconds=2),
                      "traceback": f'File "shop.py", line 7, in pay {NASTY}'}],
        "transitions": [{"at": AT + timedelta(seconds=3), "action": "retry", "from_state": "dead",
                         "to_state": "waiting", "run": 2, "who": "gateway:ops", "why": "again"}],
        "took_over": LookedBack(
            [{"id": "older", "created_at": AT, "finished_at": AT}], timedelta(hours=1), whole=True
        ),
        "follow_ups": FollowUps(None, []),
    }  # fmt: skip
    return row | fields


def instance(id: str = "one", **facts: Any) -> dict[str, Any]:
    """An instance as it registers itself."""
    return {
        "id": id, "host": "h", "version": "1", "at": datetime.now(UTC).isoformat(), "age": 0.5,
        "joined": True, "workers": 2, "workers_free": 1, "assigned": 3, "in_hand": 4, "queued": 1,
        "running": 1, "types": ["a.b", "c.d"], "read_again": 0, "lost_at_commit": 0, "paused": [],
        "running_requests": [{"request_id": f"at work {NASTY}", "type": "a.b", "worker": 7,
                              "record": "requests/0/9", "since": AT.isoformat()}],
    } | facts  # fmt: skip


def _stored(headers: Headers) -> Any:
    return orjson.loads(headers_json(headers))


class FakePageJournal:
    """Shows the rows that it is given."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = [request_row("r1"), request_row(NASTY, "waiting")]
        self.ids = ["r1", "r2"]
        self.runs: dict[str, int] = {}
        self.refs = [DeadLetterRef("message", "3")]
        self.letters: list[dict[str, Any]] = []
        self.asked: list[tuple[Any, ...]] = []
        self.slow = False
        self.odd: dict[str, list[dict[str, Any]]] = {}
        self.back = (timedelta(hours=24), True)
        """How far back it is looked, and whether that is as far as was asked for."""

    async def figures(self) -> Figures:
        return Figures([], 0, 0, 0)

    async def over_time(self, minutes: int) -> OverTime:
        return OverTime(60, minutes, [], [], [], minutes)

    async def search(self, filters: Mapping[str, Any], *, deep: bool) -> Found:
        self.asked.append(("search", dict(filters), deep))
        if self.slow and not deep:
            raise TookTooLong("the journal could not answer this")
        if filters.get("before") == "nonsense":
            raise ValueError("no place")
        return Found(self.rows, more=True, since=None if deep else AT)

    async def chosen(self, filters: Mapping[str, Any]) -> list[Chosen]:
        self.asked.append(("chosen", dict(filters)))
        if self.slow:
            raise TookTooLong("the journal could not answer this")
        return [Chosen(one, "a.b", "dead", self.runs.get(one, 1)) for one in self.ids]

    async def named(self, ids: Sequence[str]) -> list[Chosen]:
        found = {row["id"]: row for row in self.rows}
        return [
            Chosen(one, found[one]["type"], found[one]["state"], self.runs.get(one, 1))
            for one in ids
            if one in found
        ]

    async def request(self, id: str, types: Sequence[str] | None = None) -> dict[str, Any] | None:
        self.asked.append(("request", id, types))
        return next((row for row in self.rows if row["id"] == id), None)

    async def dead(
        self, filters: Mapping[str, Any], limit: int, *, deep: bool
    ) -> list[dict[str, Any]]:
        self.asked.append(("dead", dict(filters)))
        if self.slow and not deep:
            raise TookTooLong("the journal could not answer this")
        return self.letters

    async def chosen_dead(self, filters: Mapping[str, Any]) -> list[DeadLetterRef]:
        self.asked.append(("chosen_dead", dict(filters)))
        return self.refs

    async def look(
        self, name: str, *arguments: Any, types: Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        self.asked.append((name, *arguments, types))
        return self.odd.get(name, [])

    async def look_back(
        self, name: str, *arguments: Any, types: Sequence[str] | None = None, seconds: float
    ) -> LookedBack:
        self.asked.append((name, *arguments, types))
        if self.slow and seconds < 1:
            raise TookTooLong("the journal could not answer this")
        return LookedBack(self.odd.get(name, []), *self.back)


class FakeServices:
    """A look as it is given."""

    def __init__(self) -> None:
        self.found = Look(
            instances=[instance()],
            limits=ClusterLimits(types={"a.b": TypeLimit(paused=True)}),
            topics=[{"topic": "requests", "partitions": 3, "waiting": 12}],
            journal=Figures(
                [{"type": "a.b", "rate": 1.5, "done_hour": 10, "done_day": 100, "lost": 1,
                  "waiting": 1234567, "due": 5, "oldest": 90.0, "overdue": 75.0}], 3, 2, 1,
            ),
            outbox=[{"type": "a.b", "sender": "s", "state": "unanswered", "n": 4, "oldest": 9.0}],
        )  # fmt: skip
        now = int(datetime.now(UTC).timestamp()) // 60 * 60
        self.over_time = OverTime(
            60, 60,
            [{"at": now - 60 * n, "type": kind, "done": n, "other": 1}
             for n in range(1, 30) for kind in ("a.b", "c.d")],
            [{"type": "a.b", "state": "done", "code": "ok", "n": 4321},
             {"type": "a.b", "state": "done", "code": "duplicate", "n": 7},
             {"type": "c.d", "state": "failed", "code": "timeout", "n": 12}],
            [{"at": now - 60 * n, "type": "a.b", "n": 9, "wait": [0.01, 0.5], "run": [0.1, 2.0]}
             for n in (1, 2, 5)], 10,
        )  # fmt: skip
        self.gaps: list[UnfinishedOffsets] = []
        self.forgotten = 0

    async def whole(self) -> Whole:
        return Whole(self.found, self.over_time, {"journal": AT})

    async def running(self) -> Snapshot[list[dict[str, Any]]]:
        return running_in(Snapshot(self.found, AT))

    async def unfinished(self) -> Snapshot[list[UnfinishedOffsets]]:
        return Snapshot(self.gaps, AT)

    def forget(self) -> None:
        self.forgotten += 1


class FakeMover:
    """Moves all but the second of those that it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.runs: list[Runs | None] = []
        self.result: bytes | None = None
        self.breaks: OncepoolError | None = None
        """Raised at the second of them."""

    async def move(
        self,
        action: BulkAction,
        ids: Sequence[str],
        by: By,
        ending: Ending | None = None,
        *,
        runs: Runs | None = None,
        result: bytes | None = None,
    ) -> MoveOutcome:
        self.asked.append((action, list(ids), by, ending))
        self.runs.append(runs)
        self.result = result
        rows = [{"id": one, "from_state": "dead", "state": "waiting"} for one in ids[:1]]
        if self.breaks is not None:
            outcome = MoveOutcome(rows)
            outcome.plan(ids[1:])
            outcome.begin(ids[1:2])
            outcome.broke_off(self.breaks)
            return outcome
        return MoveOutcome(rows, [Refusal(one, "done", "is done") for one in ids[1:]])


class FakeBoard:
    """Keeps the changes."""

    def __init__(self) -> None:
        self.changes: list[tuple[Changes, By]] = []

    async def look(self) -> LimitsSeen:
        row = {"type": "a.b", "total": 5, "instance": None, "paused": False, "at_once": {"one": 2}}
        limits = {"workers": None, "workers_total": 9, "types": [row], "instances": ["one"],
                  "unread": ["total:"]}  # fmt: skip
        return LimitsSeen(limits, ["a.b", "c.d"])

    async def change(self, changes: Changes, by: By) -> LimitsSeen:
        check(changes)
        self.changes.append((changes, by))
        return await self.look()


class FakeSchedules:
    """Two of them, of which one is paused."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, By]] = []

    async def look(self) -> list[dict[str, Any]]:
        row: dict[str, Any] = {
            "name": "nightly", "type": "a.b", "cron": "0 6 * * *", "tz": "Europe/Oslo",
            "missed": "latest", "live": True, "last_tick": AT, "last_id": "nightly@1",
            "next_at": AT, "ticks": 3, "skipped": 0, "paused_at": None, "paused_by": None,
            "paused_why": None,
        }  # fmt: skip
        paused = {"paused_at": AT, "paused_by": "ann", "paused_why": NASTY, "type": "c.d"}
        return [row, row | {"name": "weekly"} | paused]

    async def pause(self, name: str, by: By) -> bool:
        self.asked.append(("pause", name, by))
        return True

    async def resume(self, name: str, by: By) -> bool:
        self.asked.append(("resume", name, by))
        return False


class PagesBench(GatewayBench):
    """A gateway in memory, with its pages."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.pages_journal = FakePageJournal()
        self.services = FakeServices()
        self.mover = FakeMover()
        self.board = FakeBoard()
        self.schedules = FakeSchedules()
        given = self.settings
        self.parts.pages = PageParts(
            Sessions(self.parts.access, given.gateway_session_secret, given.gateway_session_time),
            self.services,
            self.pages_journal,
            self.mover,
            self.board,
            self.schedules,
        )
        self.app = create_app(self.settings, parts=self.parts)


def fields(page: str) -> dict[str, str]:
    """The hidden fields of a page, by name; of several of one name the last."""
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page)
    return dict(found)


def fields_of(page: str) -> dict[str, list[str]]:
    """The same, of several of one name all."""
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page)
    return {name: [text for key, text in found if key == name] for name, _ in found}


def token(page: str) -> str:
    """What a form of this page brings along."""
    return fields(page)["token"]
