"""Commands on an outbox whose session is ended in the middle of what they do."""

from __future__ import annotations

import psycopg
import pytest

from consumer.commands import operator
from feedback import outbox
from feedback.outbox import dead_letters
from stack import Stack
from tests.support.commands import Commands, answer
from tests.support.outbox import Outbox

LAST = "c"
BREAK = """
CREATE FUNCTION :schema.cut() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM pg_terminate_backend(pg_backend_pid());
    RETURN NULL;
END $$;
CREATE TRIGGER cut AFTER UPDATE OR DELETE ON :schema.{table} FOR EACH ROW
    WHEN (OLD.id = 'c') EXECUTE FUNCTION :schema.cut();
"""


@pytest.fixture
def oncepool(stack: Stack, outbox_: Outbox, monkeypatch: pytest.MonkeyPatch) -> Commands:
    monkeypatch.setattr(operator, "AT_ONCE", 1)
    monkeypatch.setattr(dead_letters, "AT_ONCE", 1)
    monkeypatch.setenv("ONCEPOOL_OUTBOX_DATABASE_URL", outbox_.url)
    monkeypatch.setenv("ONCEPOOL_OUTBOX_SCHEMA", outbox_.schema)
    with psycopg.connect(outbox_.url) as connection:
        for name in ("a", "b", LAST, "d"):
            outbox.add(connection, "t", {}, request_id=name)
    outbox_.run("UPDATE :schema.requests SET state = 'undeliverable', code = 'too_large'")
    return Commands(stack, "", "")


@pytest.mark.parametrize("doing", ["retry", "drop"])
def test_what_was_moved_until_then_is_told(oncepool: Commands, outbox_: Outbox, doing: str) -> None:
    outbox_.run(BREAK.replace("{table}", "requests"))

    broken = oncepool("outbox", doing, "a", "b", "nobody", LAST, "d", "--json")

    assert broken.exit_code == 1
    told = answer(broken)
    assert [row["id"] for row in told["moved"]] == ["a", "b"]
    assert [one["id"] for one in told["refused"]] == ["nobody"]
    assert (told["unsure"], told["untried"]) == ([LAST], ["d"])
    assert "the database does not answer" in told["problem"]


def test_what_was_moved_by_filters_is_told(oncepool: Commands, outbox_: Outbox) -> None:
    outbox_.run(BREAK.replace("{table}", "requests"))

    broken = oncepool("outbox", "retry", "--all", "--yes")

    assert (broken.exit_code, broken.stdout.split()) == (1, ["id", "a", "b"])
    assert "the database does not answer" in broken.stderr


@pytest.mark.parametrize("doing", ["retry", "drop"])
def test_what_may_have_been_moved_by_filters_is_told(
    oncepool: Commands, outbox_: Outbox, doing: str
) -> None:
    """The session ends at the COMMIT, of which there is no answer."""
    late = BREAK.replace("CREATE TRIGGER", "CREATE CONSTRAINT TRIGGER").replace(
        "FOR EACH ROW", "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW"
    )
    outbox_.run(late.replace("{table}", "requests"))

    broken = oncepool("outbox", doing, "--all", "--yes", "--json")

    assert broken.exit_code == 1
    told = answer(broken)
    assert [row["id"] for row in told["moved"]] == ["a", "b"]
    assert (told["unsure"], told["untried"]) == ([LAST], [])


def test_what_was_deleted_is_counted(oncepool: Commands, outbox_: Outbox) -> None:
    assert oncepool("outbox", "drop", "--all", "--yes").exit_code == 0
    outbox_.run(
        "UPDATE :schema.finished SET settled_at = '2020-01-01'::timestamptz + seq * interval '1 s'"
    )
    outbox_.run(BREAK.replace("{table}", "finished"))

    broken = oncepool("outbox", "prune", "--older-than", "1d", "--yes", "--json")

    assert broken.exit_code == 1
    assert answer(broken)["deleted"] == 2
    assert "2 rows were deleted before that" in broken.stderr
