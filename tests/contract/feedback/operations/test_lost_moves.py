"""Moves of operators whose answers are lost, on real PostgreSQL."""

from __future__ import annotations

import base64
from collections.abc import Callable

import orjson
import psycopg
import pytest

from feedback.journal.migrations import migrate
from feedback.operations.request_actions import By, drop, retry
from stack import Stack
from tests.support.commands import Commands, answer
from tests.support.journal import Journal
from tests.support.kafka_topic import read_all
from tests.support.own_database import OwnDatabase
from tests.support.proxy import Proxy, commit_after

BY = By("ann")


def test_who_hears_of_an_error_before_the_commit_has_moved_nothing(
    journal: Journal, proxy: Proxy, through: str
) -> None:
    journal.put("r")
    for move, statement in ((retry, b"pg_notify"), (drop, b"payload IS NULL AS gone")):
        with psycopg.connect(through, autocommit=True) as line:
            proxy.lose_answer(statement)
            with pytest.raises(psycopg.Error):
                move(line, ["r", "unknown"], BY, schema=journal.schema)
        journal.rows("SELECT 1 FROM {s}.requests FOR UPDATE")  # once the server has noticed it
        assert journal.get("r")["state"] == "dead"
    assert proxy.lost == 2


def test_any_command_says_so_where_its_connection_ended_in_the_middle(
    journal: Journal, stack: Stack, prefix: str, proxy: Proxy, through: str
) -> None:
    oncepool = Commands(stack, journal.schema, prefix)
    proxy.lose_answer(b".schedules")
    ended = oncepool("schedules", "pause", "m", ONCEPOOL_DATABASE_URL=through)
    assert (proxy.lost, ended.exit_code) == (1, 1), ended.output
    assert "nobody knows whether it did: look again" in ended.stderr


@pytest.mark.parametrize("command", ["requests", "dead-letters"])
def test_a_command_says_so_where_it_does_not_know_what_it_has_moved(
    journal: Journal, stack: Stack, prefix: str, proxy: Proxy, through: str, command: str
) -> None:
    journal.put("r")
    oncepool = Commands(stack, journal.schema, prefix)
    proxy.wish(commit_after(b".transitions"))
    ended = oncepool(command, "retry", "r", ONCEPOOL_DATABASE_URL=through)
    assert (proxy.lost, ended.exit_code) == (1, 1), ended.output
    assert "r: not known whether it was moved; look at it again" in ended.stderr
    assert journal.get("r")["state"] == "waiting"


@pytest.mark.parametrize("command", ["requests", "dead-letters"])
def test_what_a_server_refuses_that_is_read_only_was_not_moved(
    stack: Stack, own_database: OwnDatabase, prefix: str, command: str
) -> None:
    migrate(own_database.url, "oncepool")
    journal = Journal(own_database.url, "oncepool")
    journal.put("r")
    journal.close()
    own_database.set_read_only(read_only=True)
    oncepool = Commands(stack, "oncepool", prefix)
    ended = oncepool(command, "retry", "r", ONCEPOOL_DATABASE_URL=own_database.url)
    assert ended.exit_code == 1
    said = ended.stderr + str(ended.exception)
    assert "read-only transaction" in said
    assert "name the primary" in said
    assert "not known" not in said


def add_letters(journal: Journal, topic: str, count: int) -> list[str]:
    """Messages that are dead letters; their numbers."""
    for n in range(count):
        pairs = [["ce_id", f"m{n}"], ["ce_type", "a"]]
        headers = [[name, base64.b64encode(text.encode()).decode()] for name, text in pairs]
        journal.insert(
            "dead_letters", topic=topic, partition=0, kafka_offset=n, payload=b"{}",
            produced_at="2026-05-01T12:00:00Z", reason="malformed", detail="was not read",
            headers=orjson.dumps(headers).decode(),
        )  # fmt: skip
    return [str(row["id"]) for row in journal.rows("SELECT id FROM {s}.dead_letters ORDER BY 1")]


def test_of_messages_that_are_sent_again_it_is_known_which_were_not_sent(
    stack: Stack, own_database: OwnDatabase, prefix: str, topic: Callable[..., str]
) -> None:
    migrate(own_database.url, "oncepool")
    journal = Journal(own_database.url, "oncepool")
    name = topic()
    numbers = add_letters(journal, name, 2)
    journal.run(
        "CREATE FUNCTION {s}.refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE 'not this one'; END $$"
    )
    journal.run(
        "CREATE TRIGGER marked BEFORE UPDATE ON {s}.dead_letters"
        " FOR EACH ROW EXECUTE FUNCTION {s}.refuse()"
    )
    journal.close()
    oncepool = Commands(stack, "oncepool", prefix)
    arguments = ("dead-letters", "retry", *numbers, "--resend", "--json")
    sent = oncepool(*arguments, ONCEPOOL_DATABASE_URL=own_database.url)
    assert sent.exit_code == 1, sent.output
    told = answer(sent)
    assert "not this one" in told["problem"]
    assert (told["unsure"], told["untried"]) == (numbers[:1], numbers[1:])
    assert len(read_all(stack.kafka, name)) == 1

    own_database.set_read_only(read_only=True)
    refused = oncepool(*arguments, ONCEPOOL_DATABASE_URL=own_database.url)
    assert refused.exit_code == 1
    said = refused.stderr + str(refused.exception)
    assert "read-only transaction" in said
    assert "not known" not in said
    assert len(read_all(stack.kafka, name)) == 1


def test_some_may_have_been_moved_where_they_are_refused_one_by_one(
    journal: Journal, stack: Stack, prefix: str
) -> None:
    """Two of one reference are not moved at once; alone each has a transaction of its own."""
    for name, day in (("newest", 3), ("older", 2), ("refused", 1)):
        key = None if name == "refused" else "k"
        journal.put(name, coalesce_key=key, produced_at=f"2026-01-0{day}T00:00:00Z")
    journal.run(
        "CREATE FUNCTION {s}.refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE 'not this one'; END $$"
    )
    journal.run(
        "CREATE CONSTRAINT TRIGGER late AFTER UPDATE ON {s}.requests DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW WHEN (new.id = 'refused') EXECUTE FUNCTION {s}.refuse()"
    )
    oncepool = Commands(stack, journal.schema, prefix)
    ended = oncepool("requests", "retry", "newest", "older", "refused", "--json")
    assert ended.exit_code == 1, ended.output
    told = answer(ended)
    assert (sorted(told["unsure"]), told["untried"]) == (["newest", "older", "refused"], [])
    assert "not this one" in told["problem"]
    assert journal.get("newest")["state"] == "waiting"


def test_dead_letters_that_a_command_did_not_come_to_are_told(
    journal: Journal, stack: Stack, prefix: str, proxy: Proxy, through: str
) -> None:
    first, second = add_letters(journal, "requests", 2)
    journal.put("r")
    oncepool = Commands(stack, journal.schema, prefix)
    proxy.wish(commit_after(b".dead_letters"))
    arguments = ("retry", first, second, "r", "--json")
    ended = oncepool("dead-letters", *arguments, ONCEPOOL_DATABASE_URL=through)
    assert (proxy.lost, ended.exit_code) == (1, 1), ended.output
    told = answer(ended)
    assert (told["moved"], told["unsure"], told["untried"]) == ([], [first], [second, "r"])
    assert "2 were not tried" in ended.stderr
