"""What the list of an outbox's dead letters shows."""

from __future__ import annotations

from itertools import chain

import psycopg

from feedback import outbox
from feedback.outbox.dead_letters import OutboxFilter, OutboxOperator
from stack import Stack
from tests.support.commands import Commands
from tests.support.outbox import Outbox

WIDE = "\U0001f600"
"""A character of four bytes."""
STOOD = ("first", "conflict", "dropped", "done", "last")


def _dead_letters(outbox_: Outbox) -> None:
    with psycopg.connect(outbox_.url) as connection:
        for name in STOOD:
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
            " INSERT INTO :schema.finished (seq, created_at, sent_at, settled_at, sends, id, type,"
            " sender, state, code, fingerprint) SELECT seq, created_at, now(), now(), 1, id, type,"
            f" sender, '{state}', '{code}', fingerprint FROM gone"
        )


def test_a_conflict_is_listed_though_it_has_ended(outbox_: Outbox) -> None:
    """What was given up is not, nor what has its answer."""
    _dead_letters(outbox_)
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


def test_a_conflict_is_listed_until_it_is_dropped(outbox_: Outbox) -> None:
    _dead_letters(outbox_)
    with psycopg.connect(outbox_.url, autocommit=True) as connection:
        operator = OutboxOperator(connection, outbox_.schema)
        everything = OutboxFilter()
        assert list(operator.drop(OutboxFilter(type="other"))) == []
        assert list(operator.drop(OutboxFilter(("unanswered",)))) == []
        assert list(operator.drop(OutboxFilter(ids=["conflict", "done", "dropped"]))) == [
            ["conflict"]
        ]
        assert [row["id"] for row in operator.rows(everything, 9)] == ["first", "last"]
        assert list(operator.drop(OutboxFilter(ids=["conflict"]))) == []
        assert not operator.standing(["conflict"])["conflict"].may_have_run
        [row] = outbox_.rows("SELECT * FROM :schema.all_requests WHERE id = 'conflict'")
        assert (row["state"], row["code"]) == ("undeliverable", "conflict_dropped")
        assert sorted(chain.from_iterable(operator.drop(everything))) == ["first", "last"]


def test_a_producer_is_told_of_what_is_dropped(outbox_: Outbox, stack: Stack) -> None:
    """As of every end: by a notification and, where there is one, by its inbox."""
    _dead_letters(outbox_)
    outbox_.run("UPDATE :schema.requests SET reference = 'r', error = 'why' WHERE id = 'last'")
    outbox_.connection.execute(f"LISTEN {outbox_.schema}_settled".encode())

    def told() -> list[str]:
        return [n.payload for n in outbox_.connection.notifies(timeout=5, stop_after=1)]

    place = {"ONCEPOOL_OUTBOX_DATABASE_URL": outbox_.url, "ONCEPOOL_OUTBOX_SCHEMA": outbox_.schema}
    oncepool = Commands(stack, "", "")
    assert oncepool("outbox", "drop", "first", **place).exit_code == 0
    assert told() == ["first"]
    assert outbox_.rows("SELECT * FROM :schema.inbox") == []
    assert oncepool("outbox", "drop", "last", ONCEPOOL_OUTBOX_INBOX="1", **place).exit_code == 0
    assert told() == ["last"]
    [row] = outbox_.rows("SELECT * FROM :schema.inbox")
    assert [row[name] for name in ("id", "type", "state", "code", "reference", "error")] == [
        "last", "pay", "undeliverable", "topic_missing", "r", "why",
    ]  # fmt: skip


def test_a_second_row_of_what_has_ended_is_dropped_without_a_word(outbox_: Outbox) -> None:
    _dead_letters(outbox_)
    outbox_.run("UPDATE :schema.requests SET id = 'done' WHERE id = 'first'")
    outbox_.connection.execute(f"LISTEN {outbox_.schema}_settled".encode())
    with psycopg.connect(outbox_.url, autocommit=True) as connection:
        operator = OutboxOperator(connection, outbox_.schema, inbox=True)
        assert list(operator.drop(OutboxFilter(ids=["done"]))) == [["done"]]
        assert list(operator.drop(OutboxFilter(ids=["last"]))) == [["last"]]
    told = outbox_.connection.notifies(timeout=5, stop_after=1)
    assert [n.payload for n in told] == ["last"]
    assert [row["id"] for row in outbox_.rows("SELECT id FROM :schema.inbox")] == ["last"]


def test_the_list_reads_no_finished_rows_but_conflicts(outbox_: Outbox) -> None:
    _dead_letters(outbox_)
    uses = (
        "SELECT t.seq_scan AS whole, sum(i.idx_scan)::int AS parts FROM pg_stat_user_tables t"
        " JOIN pg_stat_user_indexes i USING (relid)"
        " WHERE t.schemaname = ':schema' AND t.relname = 'finished' GROUP BY 1"
    )
    with psycopg.connect(outbox_.url, autocommit=True) as connection:
        connection.execute("SET enable_seqscan = off")  # few rows are read whole, whatever there is
        operator = OutboxOperator(connection, outbox_.schema)

        def read(*states: str) -> tuple[int, int]:
            [before] = outbox_.rows(uses)
            operator.rows(OutboxFilter(states), 9)
            connection.execute("SELECT pg_stat_force_next_flush()")
            connection.execute("SELECT")
            [after] = outbox_.rows(uses)
            return after["whole"] - before["whole"], after["parts"] - before["parts"]

        outbox_.rows("SELECT pg_stat_force_next_flush()")
        assert read("unsent") == (0, 0)
        assert read("unanswered", "undeliverable") == (0, 1)


def test_an_id_that_no_notification_has_room_for_is_dropped_with_the_others(
    outbox_: Outbox,
) -> None:
    """Written by hand: no request has an id that long."""
    _dead_letters(outbox_)
    outbox_.run(f"UPDATE :schema.requests SET id = repeat('{WIDE}', 2001) WHERE id = 'first'")
    with (
        psycopg.connect(outbox_.url, autocommit=True) as connection,
        psycopg.connect(outbox_.url, autocommit=True) as listener,
    ):
        listener.execute(f"LISTEN {outbox_.schema}_settled".encode())
        operator = OutboxOperator(connection, outbox_.schema)
        dropped = set(chain.from_iterable(operator.drop(OutboxFilter())))
        assert dropped == {WIDE * 2001, "conflict", "last"}
        told = [one.payload for one in listener.notifies(timeout=60, stop_after=2)]
        assert told == [WIDE * 1999, "last"]
