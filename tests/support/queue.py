"""An executor whose requests may wait, and a claimer that claims when it is told to."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import psycopg

from feedback.journal.claims import ClaimRequest, claim
from feedback.journal.connections import open_connection
from processing import App, Request, RetryPolicy
from processing.handlers.decoder import Message, RawMessage
from tests.support.executor import Bench

INSTANCE = "local"
FAR = "2035-01-01T00:00:00Z"


def queue_app(schema: str, answers: dict[str, Any], ran: list[Any]) -> App:  # noqa: C901 - handlers
    app = App()
    picky = RetryPolicy(attempts=3, base=50, jitter=0, on=(OSError,))

    def note(request: Request[Any], tx: psycopg.Cursor[Any]) -> None:
        tx.execute(f"INSERT INTO {schema}.effects VALUES (%s)", (request.id,))
        tell(request)

    def tell(request: Request[Any]) -> None:
        ran.append((request.id, request.attempt))
        answer = answers.get(request.id)
        if isinstance(answer, BaseException):
            raise answer
        if callable(answer):
            answer()

    @app.handler("pay", retries=2)
    def pay(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> str:
        note(request, tx)
        return "paid"

    @app.handler("once")
    def once(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        note(request, tx)

    @app.handler("says")
    def says(payload: Any, tx: psycopg.Cursor[Any]) -> None:
        tx.execute(payload["sql"])

    @app.handler("unique", redelivery=False)
    def unique(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        note(request, tx)

    @app.handler("picky", retries=picky)
    def choosy(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        note(request, tx)

    @app.handler("later", not_before=lambda p: datetime.fromisoformat(p["at"]))
    def later(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        note(request, tx)

    @app.handler("count", coalesce=lambda p: p.get("sku"), window=20, window_cap=30, retries=1)
    def count(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        note(request, tx)

    @app.handler("tally", coalesce=lambda p: p["sku"])
    def tally(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        note(request, tx)

    @app.handler("pure", effect="none", retries=1)
    def pure(payload: Any, request: Request[Any]) -> str:
        tell(request)
        return "computed"

    @app.handler("reckoned", effect="none", redelivery=False)
    def reckoned(payload: Any, request: Request[Any]) -> None:
        ran.append((request.id, request.attempt))

    @app.handler("call", effect="external", retries=1)
    def call(payload: Any, request: Request[Any]) -> str:
        tell(request)
        return "called"

    @app.handler("order")
    def order(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> str:
        first = request.follow_up("once", {"of": request.id})
        request.follow_up("once", {}, at=datetime(2035, 1, 1, tzinfo=UTC), request_id="named")
        note(request, tx)
        return first

    @app.handler("renewed")
    def renewed(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
        """While it runs its lease is renewed, committed when the row is to be finished."""
        note(request, tx)
        claimer = answers["claimer"]
        claimer.execute(f"UPDATE {schema}.requests SET lease_until = now() WHERE id = 'a'".encode())
        threading.Timer(0.3, claimer.commit).start()

    @app.handler("recount")
    def recount(payload: Any, request: Request[Any]) -> list[str]:
        at = datetime(2035, 1, 1, tzinfo=UTC)
        return [request.follow_up("count", {"sku": "f"}, at=due) for due in (None, None, at)]

    if answers.get("novel"):

        @app.handler("novel", retries=1)
        def novel(payload: Any, tx: psycopg.Cursor[Any], request: Request[Any]) -> None:
            note(request, tx)

    @app.decoder("foreign")
    def foreign(message: RawMessage) -> Message:
        return Message(
            "f-1", "once", {"n": 1}, not_before=datetime(2035, 1, 1, tzinfo=UTC), reference="r"
        )

    return app


class Queue(Bench):
    """An executor, and a claimer that claims when it is told to."""

    order = 0

    def due(self, *ids: str) -> None:
        """Makes rows due now, whatever they wait for."""
        self.query(
            f"UPDATE {self.schema}.requests SET due_at = now(), not_before = CASE WHEN not_before"
            " > now() THEN now() ELSE not_before END WHERE id = ANY(%s) AND state = 'waiting'",
            list(ids),
        )

    def claimed(self, *ids: str) -> list[Any]:
        self.due(*ids)
        self.order += 1
        with open_connection(self.url, "oncepool maintenance") as connection:
            haul = claim(connection, INSTANCE, ClaimRequest(self.order, 100), schema=self.schema)
        found = {dict(row.record[6] or ())["ce_id"].decode(): row for row in haul.rows}  # type: ignore[union-attr]
        return [found[name].record for name in ids]

    def again(self, *ids: str) -> None:
        """Claims these and runs them."""
        self.run(*self.claimed(*ids))

    def row(self, id: str) -> dict[str, Any]:
        names = (
            "state, code, attempt, used, run, crashes, due_at, not_before, token, lease_until,"
            " superseded_by, finished_at, payload, headers, fingerprint, kafka_offset, partition"
        )
        rows = self.query(f"SELECT {names} FROM {self.schema}.requests WHERE id = %s", id)
        return dict(zip(names.replace(" ", "").split(","), rows[0], strict=True)) if rows else {}

    def timeline(self, id: str) -> list[tuple[Any, ...]]:
        return self.query(
            f"SELECT run, code FROM {self.schema}.attempts WHERE request_id = %s ORDER BY run", id
        )

    def told(self, id: str) -> dict[str, Any]:
        return next(s for s in reversed(self.statuses) if s["id"] == id)
