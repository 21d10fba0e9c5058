"""Upgrading a journal that is in use."""

from __future__ import annotations

import psycopg
import pytest

from feedback.journal import migrations
from feedback.journal.housekeeping import add_counters
from feedback.journal.migrations import migrate
from feedback.schema_versions import found_version
from stack import Stack
from tests.support.journal import Journal, Rival
from tests.support.waiting import eventually


def test_a_table_in_use_holds_up_the_migration_and_nobody_else(
    stack: Stack, empty_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = migrations.migrations()
    monkeypatch.setattr(migrations, "migrations", lambda: known[:1])
    migrate(stack.database, empty_schema)
    monkeypatch.setattr(migrations, "migrations", lambda: known)
    monkeypatch.setattr(migrations, "FIRST_WAIT", 0.5)
    monkeypatch.setattr(migrations, "LONGEST_WAIT", 1.0)
    monkeypatch.setattr(migrations, "BEYOND", -0.9)
    look = f"SELECT count(*) FROM {empty_schema}.requests".encode()
    waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = %s::regclass"
    with (
        psycopg.connect(stack.database) as user,
        psycopg.connect(stack.database, autocommit=True, options="-c lock_timeout=15s") as other,
    ):
        user.execute(look)  # in a transaction that stays open
        upgrade = Rival(stack.database, lambda _: migrate(stack.database, empty_schema))
        for _ in range(3):
            eventually(lambda: other.execute(waits, [f"{empty_schema}.requests"]).fetchone())
            other.execute(look)
        assert not upgrade.done
        user.commit()
        assert upgrade.result(60) == [migration.name for migration in known[1:]]
        assert found_version(other, empty_schema) == known[-1].version


def test_each_try_waits_for_a_lock_longer_than_the_one_before_and_than_an_autovacuum_may_take(
    stack: Stack, empty_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    slept: list[float] = []

    def held(*given: object) -> str:
        waits.append(float(str(given[-1])))
        raise psycopg.errors.LockNotAvailable("canceling statement due to lock timeout")

    monkeypatch.setattr(migrations, "_apply_next", held)
    monkeypatch.setattr(migrations.time, "sleep", slept.append)
    with pytest.raises(psycopg.errors.LockNotAvailable, match="for as long as their handlers run"):
        migrate(stack.database, empty_schema)
    deadlock_timeout = 1.0  # PostgreSQL's own, and the stack's
    assert waits[:4] == [deadlock_timeout + migrations.BEYOND, 3.0, 6.0, migrations.LONGEST_WAIT]
    assert slept == waits[:-1], "others have as long as they were held up for"
    assert len(waits) == migrations.MOST_TRIES


def test_a_counter_that_goes_up_and_up_makes_no_index_entries(journal: Journal) -> None:
    counts = {(60, f"t{n}", "done", "ok"): 1 for n in range(5_000)}
    for _ in range(2):
        assert add_counters(journal.connection, counts, schema=journal.schema) == []
    journal.run("SELECT pg_stat_force_next_flush()")
    [found] = journal.rows(
        "SELECT n_tup_upd::int AS all, n_tup_hot_upd::int AS in_place FROM pg_stat_user_tables"
        " WHERE schemaname = %s AND relname = 'counters'", journal.schema,
    )  # fmt: skip
    assert found["all"] == 5_000
    assert found["in_place"] > 0.95 * found["all"]


def test_a_large_journal_is_cleaned_before_a_fifth_of_it_has_changed(journal: Journal) -> None:
    [row] = journal.rows(
        "SELECT reloptions FROM pg_class WHERE oid = %s::regclass", f"{journal.schema}.requests"
    )
    assert {"autovacuum_vacuum_scale_factor=0.01", "autovacuum_analyze_scale_factor=0.01"} <= set(
        row["reloptions"]
    )
