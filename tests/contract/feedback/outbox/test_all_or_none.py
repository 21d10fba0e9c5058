"""A call that adds requests writes all of them or none, whoever looks or writes meanwhile."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from feedback import outbox
from feedback.errors import RequestIdInUse
from feedback.outbox.relay.answers import Ended, Findings
from feedback.outbox.relay.writing import FindingsWriter
from tests.support.journal import Rival
from tests.support.outbox import Outbox
from tests.support.outbox_kinds import AUTOCOMMIT_KINDS, Opened, with_connection
from tests.support.waiting import eventually

TYPE = "payment.create"
NEW = (TYPE, {}, {"request_id": "new"})
OTHER = (TYPE, {"other": 1}, {"request_id": "r"})
_WITNESS = """
CREATE TABLE :schema.committed (id text);
CREATE FUNCTION :schema.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO :schema.committed SELECT id FROM :schema.requests WHERE seq = NEW.seq;
    RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER noted AFTER INSERT ON :schema.requests DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION :schema.note();
"""
_WAITING = "SELECT FROM pg_locks WHERE NOT granted AND pid = %s"


async def done(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


@pytest.fixture
def committed(outbox_: Outbox) -> Callable[[], list[str]]:
    """Ids of rows that a commit has shown to others, also where they are gone by now."""
    outbox_.run(_WITNESS)
    return lambda: [row["id"] for row in outbox_.rows("SELECT id FROM :schema.committed")]


def rival_waits(outbox_: Outbox, rival: Rival[Any]) -> bool:
    return bool(outbox_.connection.execute(_WAITING, [rival.pid]).fetchall())


def add_sent(outbox_: Outbox) -> int:
    """A row that consumers have; its seq."""
    with psycopg.connect(outbox_.url) as connection:
        outbox.add(connection, TYPE, {}, request_id="r")
    outbox_.run("UPDATE :schema.requests SET state = 'sent', sent_at = now(), sends = 1")
    return int(outbox_.rows()[0]["seq"])


def end(outbox_: Outbox, connection: Any, seq: int, state: str, code: str) -> list[Ended]:
    found = Findings([Ended(seq, "r", TYPE, state, code, None, None)], [], [], [])
    return FindingsWriter(outbox_.schema, inbox=True).write(connection, found).gone


@pytest.mark.parametrize("kind", AUTOCOMMIT_KINDS)
def test_without_a_transaction_nobody_sees_a_batch_with_an_id_that_is_taken(
    outbox_: Outbox, committed: Callable[[], list[str]], kind: str
) -> None:
    async def script(db: Opened) -> None:
        await done(outbox.add(db.given, TYPE, {}, request_id="r"))
        with pytest.raises(RequestIdInUse, match="'r'"):
            await done(outbox.add_many(db.given, [NEW, OTHER]))
        many = [(TYPE, {}, {"request_id": str(n)}) for n in range(3)]
        assert await done(outbox.add_many(db.given, many)) == ["0", "1", "2"]

    with_connection(outbox_.url, kind, script)
    assert committed() == ["r", "0", "1", "2"]


def test_one_that_waits_for_the_same_id_writes_nothing_of_its_batch(
    outbox_: Outbox, committed: Callable[[], list[str]]
) -> None:
    with psycopg.connect(outbox_.url) as first:
        outbox.add(first, TYPE, {}, request_id="r")
        rival = Rival(outbox_.url, lambda c: outbox.add_many(c, [NEW, OTHER]))
        eventually(lambda: rival_waits(outbox_, rival))
    with pytest.raises(RequestIdInUse, match="'r'"):
        rival.result()
    assert committed() == ["r"]


def test_one_that_waits_for_an_id_which_is_rolled_back_has_it(outbox_: Outbox) -> None:
    with psycopg.connect(outbox_.url) as first:
        outbox.add(first, TYPE, {}, request_id="r")
        rival = Rival(outbox_.url, lambda c: outbox.add_many(c, [NEW, OTHER]))
        eventually(lambda: rival_waits(outbox_, rival))
        first.rollback()
    assert rival.result() == ["new", "r"]
    assert [row["id"] for row in outbox_.rows()] == ["new", "r"]


def test_an_id_whose_row_ends_meanwhile_is_not_taken_by_another_request(outbox_: Outbox) -> None:
    seq = add_sent(outbox_)
    with psycopg.connect(outbox_.url) as relay, relay.transaction():
        assert end(outbox_, relay, seq, "done", "ok")
        rival = Rival(outbox_.url, lambda c: outbox.add_many(c, [NEW, OTHER]))
        eventually(lambda: rival_waits(outbox_, rival))
    with pytest.raises(RequestIdInUse, match="'r'"):
        rival.result()
    assert outbox_.rows() == []


def test_a_request_that_is_added_again_while_its_row_ends_has_no_second_row(
    outbox_: Outbox, committed: Callable[[], list[str]]
) -> None:
    seq = add_sent(outbox_)
    with psycopg.connect(outbox_.url) as relay, relay.transaction():
        assert end(outbox_, relay, seq, "done", "ok")
        again = [NEW, (TYPE, {}, {"request_id": "r"})]
        rival = Rival(outbox_.url, lambda c: outbox.add_many(c, again))
        eventually(lambda: rival_waits(outbox_, rival))
    assert rival.result() == ["new", "r"]
    assert [row["id"] for row in outbox_.rows()] == ["new"]
    assert committed() == ["r", "new"]


@pytest.mark.parametrize(
    "state,code", [("undeliverable", "conflict"), ("done", "ok")], ids=["conflict", "done"]
)
def test_another_request_under_an_id_that_has_ended_stays_as_a_conflict(
    outbox_: Outbox, state: str, code: str
) -> None:
    """As one of a transaction that reads as of a time before that end."""
    first = add_sent(outbox_)
    relay = psycopg.connect(outbox_.url, autocommit=True)
    with relay, psycopg.connect(outbox_.url) as late:
        late.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        late.execute("SELECT now()")
        end(outbox_, relay, first, "done", "ok")
        outbox.add(late, *OTHER[:2], **OTHER[2])
        late.commit()
        [second] = outbox_.rows()
        outbox_.run("UPDATE :schema.requests SET state = 'sent', sent_at = now(), next_at = now()")

        relay.execute(outbox_.sql("LISTEN :schema_settled").encode())
        [told] = end(outbox_, relay, second["seq"], state, code)
        assert (told.state, told.code) == ("undeliverable", "conflict")
        assert f"{state}/{code}" in str(told.error)
        [row] = outbox_.rows()
        assert (row["state"], row["code"], row["next_at"]) == ("undeliverable", "conflict", None)
        assert (row["payload"], row["error"]) == (b'{"other":1}', told.error)
        assert [row["state"] for row in outbox_.rows("SELECT state FROM :schema.finished")] == [
            "done"
        ]
        inbox = outbox_.rows("SELECT state, code, error FROM :schema.inbox ORDER BY n")
        assert [tuple(row.values()) for row in inbox] == [
            ("done", "ok", None),
            told[3:5] + told[6:],
        ]
        assert [n.payload for n in relay.notifies(timeout=60, stop_after=1)] == ["r"]
        assert end(outbox_, relay, second["seq"], state, code) == []
