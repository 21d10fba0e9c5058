"""Moves of operators whose answers are lost, on real PostgreSQL."""

from __future__ import annotations

import base64

import orjson
import psycopg
import pytest

from feedback.operations.request_actions import By, drop, retry
from stack import Stack
from tests.support.commands import Commands, answer
from tests.support.journal import Journal
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


def test_dead_letters_that_a_command_did_not_come_to_are_told(
    journal: Journal, stack: Stack, prefix: str, proxy: Proxy, through: str
) -> None:
    for n in range(2):
        pairs = [["ce_id", f"m{n}"], ["ce_type", "a"]]
        headers = [[name, base64.b64encode(text.encode()).decode()] for name, text in pairs]
        journal.insert(
            "dead_letters", topic="requests", partition=0, kafka_offset=n, payload=b"{}",
            produced_at="2026-05-01T12:00:00Z", reason="malformed", detail="was not read",
            headers=orjson.dumps(headers).decode(),
        )  # fmt: skip
    first, second = [str(row["id"]) for row in journal.rows("SELECT id FROM {s}.dead_letters")]
    journal.put("r")
    oncepool = Commands(stack, journal.schema, prefix)
    proxy.wish(commit_after(b".dead_letters"))
    arguments = ("retry", first, second, "r", "--json")
    ended = oncepool("dead-letters", *arguments, ONCEPOOL_DATABASE_URL=through)
    assert (proxy.lost, ended.exit_code) == (1, 1), ended.output
    told = answer(ended)
    assert (told["moved"], told["unsure"], told["untried"]) == ([], [first], [second, "r"])
    assert "2 were not tried" in ended.stderr
