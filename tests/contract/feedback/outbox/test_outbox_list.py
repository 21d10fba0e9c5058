"""What the list of an outbox's dead letters shows."""

from __future__ import annotations

import psycopg

from feedback import outbox
from feedback.outbox.dead_letters import OutboxFilter, OutboxOperator
from tests.support.outbox import Outbox


def test_a_conflict_is_listed_though_it_has_ended(outbox_: Outbox) -> None:
    """What was given up is not, nor what has its answer."""
    with psycopg.connect(outbox_.url) as connection:
        for name in ("first", "conflict", "dropped", "done", "last"):
            outbox.add(connection, "pay", {}, request_id=name)
    for name in ("first", "last"):
        outbox_.run(
            "UPDATE :schema.requests SET state = 'undeliverable', code = 'topic_missing'"
            f" WHERE id = '{name}'"
        )
    ends = {"conflict": "conflict", "dropped": "topic_missing", "done": "ok"}
    for name, code in ends.items():
        state = "done" if name == "done" else "undeliverable"
        outbox_.run(
            f"WITH gone AS (DELETE FROM :schema.requests WHERE id = '{name}' RETURNING *)"
            " INSERT INTO :schema.finished (seq, created_at, settled_at, sends, id, type, sender,"
            " state, code, fingerprint) SELECT seq, created_at, now(), 1, id, type, sender,"
            f" '{state}', '{code}', fingerprint FROM gone"
        )
    with psycopg.connect(outbox_.url, autocommit=True) as connection:
        operator = OutboxOperator(connection, outbox_.schema)

        def shown(wanted: OutboxFilter, limit: int = 9) -> list[str]:
            return [row["id"] for row in operator.rows(wanted, limit)]

        assert shown(OutboxFilter()) == ["first", "conflict", "last"]
        assert shown(OutboxFilter(("undeliverable",)), 2) == ["first", "conflict"]
        assert shown(OutboxFilter(("unanswered",))) == []
        assert shown(OutboxFilter(type="other")) == []
        (row,) = (r for r in operator.rows(OutboxFilter(), 9) if r["id"] == "conflict")
        assert (row["state"], row["code"], row["next_at"]) == ("undeliverable", "conflict", None)
