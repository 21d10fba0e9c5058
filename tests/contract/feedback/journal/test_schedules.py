"""Schedules on real PostgreSQL: whoever looks, each tick is one request."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import psycopg

from feedback.contract.schedule import Schedule, tick_id, ticks_after
from feedback.journal.claims import ClaimRequest, claim
from feedback.journal.schedules import TicksMade, make_ticks
from feedback.operations.inspection import latest_changes
from feedback.operations.request_actions import By
from feedback.operations.schedules import (
    drop_schedules,
    list_schedules,
    pause_schedules,
    resume_schedules,
)
from tests.support.journal import Journal

HOURLY = Schedule("m", "report", f"{(datetime.now(UTC).minute + 30) % 60} * * * *", "UTC")
"""Half an hour from now and each hour before and after: never while a test runs."""


def look(journal: Journal, *schedules: Schedule, **more: Any) -> TicksMade:
    return make_ticks(journal.connection, schedules or [HOURLY], schema=journal.schema, **more)


def back(journal: Journal, hours: int, *, seen: float = 0.0) -> None:
    """As if nobody had decided anything for so long, nor looked for so many seconds."""
    journal.run(
        "UPDATE {s}.schedules SET decided_until = now() - make_interval(hours => %s),"
        " seen_at = now() - make_interval(secs => %s)",
        hours, seen,
    )  # fmt: skip


def requests(journal: Journal) -> list[str]:
    return [row["id"] for row in journal.rows("SELECT id FROM {s}.requests ORDER BY id")]


def test_a_tick_becomes_a_row_that_any_instance_claims(journal: Journal) -> None:
    first = look(journal)
    assert (first.ticks, requests(journal)) == ([], [])
    assert first.again_in is not None
    assert 0 < first.again_in <= 3600
    back(journal, 1)
    [tick] = look(journal).ticks
    assert look(journal).ticks == []
    row = journal.get(tick.id)
    stands = (row["type"], row["state"], row["code"], row["run"])
    assert stands == ("report", "waiting", "scheduled", 0)
    found = claim(journal.connection, "here", ClaimRequest(1, 10), schema=journal.schema)
    [claimed] = found.rows
    assert claimed.record[5] == tick.payload
    assert dict(claimed.record[6] or [])["oncepool-schedule"] == b"m"
    [shown] = list_schedules(journal.connection, schema=journal.schema)
    assert (shown["ticks"], shown["last_id"], shown["live"]) == (1, tick.id, True)
    assert shown["next_at"] > shown["last_tick"] == tick.at


def test_of_several_that_look_at_once_one_makes_the_tick(
    journal: Journal, other: psycopg.Connection[Any]
) -> None:
    look(journal)
    back(journal, 1)
    with journal.holding("SELECT FROM {s}.schedules FOR UPDATE"):
        # Whoever holds the row is just about it: nobody waits, and it is looked at again soon.
        waited = look(journal)
        assert (waited.ticks, waited.busy) == ([], True)
    made = [make_ticks(c, [HOURLY], schema=journal.schema) for c in (journal.connection, other)]
    assert sum(len(one.ticks) for one in made) == 1
    assert len(requests(journal)) == 1


def test_a_tick_that_was_made_is_not_made_again_whatever_the_schedule_says(
    journal: Journal,
) -> None:
    look(journal)
    back(journal, 1)
    [tick] = look(journal).ticks
    back(journal, 1)  # as a clock that goes back, or somebody's SQL
    again = look(journal)
    assert (again.ticks, again.taken) == ([], [])
    assert requests(journal) == [tick.id]
    [shown] = list_schedules(journal.connection, schema=journal.schema)
    assert shown["ticks"] == 1


def test_a_request_that_is_just_written_under_its_id_is_waited_for(journal: Journal) -> None:
    look(journal)
    back(journal, 1)
    [found] = journal.rows("SELECT now() - interval '1 hour' AS at")
    name = tick_id("m", next(ticks_after(HOURLY.cron, "UTC", found["at"])))
    insert = (
        "INSERT INTO {s}.requests (id, type, state, code, effect, topic, partition, kafka_offset,"
        " produced_at) VALUES (%s, 't', 'done', 'ok', 'transaction', '', 0, 0, now())"
    )
    with journal.holding(insert, name):
        assert look(journal).busy
    found_there = look(journal)
    assert (found_there.ticks, [tick.id for tick in found_there.taken]) == ([], [name])
    assert requests(journal) == [name]
    # It is no tick of the schedule's, and what was to run is told and kept.
    [shown] = list_schedules(journal.connection, schema=journal.schema)
    assert (shown["last_tick"], shown["ticks"]) == (None, 0)
    back(journal, 1)
    assert look(journal).taken
    [letter] = journal.rows("SELECT request_id, reason, payload FROM {s}.dead_letters")
    kept = (letter["request_id"], letter["reason"], bytes(letter["payload"]))
    assert kept == (name, "conflict", found_there.taken[0].payload)


def test_an_absence_is_made_up_for_as_declared(journal: Journal) -> None:
    declared = [HOURLY._replace(name=n, missed=n) for n in ("latest", "all", "skip")]
    look(journal, *declared)
    back(journal, 5)
    made = look(journal, *declared)
    names = [tick.id.partition("@")[0] for tick in made.ticks]
    assert sorted(names) == ["all"] * 5 + ["latest"]
    assert made.skipped == {"latest": 4, "skip": 5}


def test_a_pause_makes_nothing_and_what_falls_into_it_is_not_made_up_for(journal: Journal) -> None:
    look(journal)
    connection, schema = journal.connection, journal.schema
    assert pause_schedules(connection, ["m", "none"], By("me", "why"), schema=schema) == {"m"}
    back(journal, 3)
    assert look(journal).ticks == []
    [row] = list_schedules(connection, ["m"], schema=schema)
    assert (row["paused_by"], row["paused_why"], row["next_at"]) == ("me", "why", None)
    assert resume_schedules(connection, ["m"], By("you"), schema=schema) == {"m"}
    assert resume_schedules(connection, ["m"], By("nobody"), schema=schema) == set()
    rows = latest_changes(connection, 9, types=[HOURLY.type], schema=schema)
    assert [(r["what"], r["name"], r["action"], r["who"], r["why"]) for r in rows] == [
        ("schedule", "m", "resume", "you", None), ("schedule", "m", "pause", "me", "why"),
    ]  # fmt: skip
    assert latest_changes(connection, 9, types=["other"], schema=schema) == []
    again = look(journal)
    assert again.ticks == []
    assert again.again_in is not None


def test_a_second_pause_leaves_since_when_by_whom_and_why(journal: Journal) -> None:
    look(journal)
    connection, schema = journal.connection, journal.schema
    assert pause_schedules(connection, ["m"], By("ann"), schema=schema) == {"m"}
    [first] = list_schedules(connection, ["m"], schema=schema)
    assert pause_schedules(connection, ["m"], By("bob", "too"), schema=schema) == {"m"}
    [second] = list_schedules(connection, ["m"], schema=schema)
    names = ("paused_at", "paused_by", "paused_why")
    assert [second[name] for name in names] == [first[name] for name in names]
    assert (second["paused_by"], second["paused_why"]) == ("ann", None)
    changes = latest_changes(connection, 9, types=[HOURLY.type], schema=schema)
    assert [(row["action"], row["who"]) for row in changes] == [("pause", "bob"), ("pause", "ann")]


def test_versions_side_by_side_make_the_ticks_of_the_newer_one(journal: Journal) -> None:
    old, new = HOURLY, HOURLY._replace(cron="0 6 * * *")
    look(journal, old)
    look(journal, new)
    back(journal, 2, seen=30)
    assert look(journal, old, watched=3600).ticks == []
    # Those that look after it may only have been kept from it, with who asks.
    back(journal, 2, seen=7200)
    assert look(journal, old, watched=10).ticks == []
    # They are gone.
    assert len(look(journal, old, watched=70).ticks) == 1
    # They are back.
    look(journal, new)
    look(journal, old)
    [row] = list_schedules(journal.connection, schema=journal.schema)
    assert row["cron"] == new.cron


def test_of_what_a_schedule_was_declared_as_the_latest_are_kept(journal: Journal) -> None:
    for minute in range(60):
        look(journal, HOURLY._replace(cron=f"{minute} 6 * * *"))
    [row] = journal.rows("SELECT known FROM {s}.schedules")
    assert len(row["known"]) == 50
    assert '"59 6 * * *"' in row["known"][-1]


def test_what_no_app_declares_any_more_can_be_forgotten(journal: Journal) -> None:
    look(journal)
    connection, schema = journal.connection, journal.schema
    assert drop_schedules(connection, ["m"], By("me"), schema=schema) == set()
    back(journal, 2, seen=90)
    assert not list_schedules(connection, schema=schema)[0]["live"]
    assert drop_schedules(connection, ["m"], By("me"), schema=schema) == {"m"}
    assert list_schedules(connection, schema=schema) == []
    assert [r["action"] for r in latest_changes(connection, 9, schema=schema)] == ["drop"]


def test_a_payload_is_kept_as_it_is_however_the_server_reads_a_backslash(journal: Journal) -> None:
    look(journal)
    back(journal, 1)
    journal.connection.execute("SET standard_conforming_strings = off")
    [tick] = look(journal).ticks
    assert journal.get(tick.id)["payload"] == tick.payload
