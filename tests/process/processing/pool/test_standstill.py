"""What an instance that starts nothing leaves to another one, with real workers and claims."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from feedback.journal.migrations import migrate
from tests.support.own_database import OwnDatabase
from tests.support.waiting_rows import WaitingRows
from tests.support.workers import Workers

Make = Callable[..., Workers]


def add(rows: WaitingRows, workers: Workers, *ids: str) -> None:
    rows.add(*ids, type="fragile", payload=orjson.dumps({"table": workers.table, "do": ""}))


def claimed(rows: WaitingRows) -> list[str]:
    """What somebody has in hand, or runs."""
    found = rows.query(f"SELECT id FROM {rows.schema}.requests WHERE token IS NOT NULL ORDER BY 1")
    return [name for (name,) in found]


def done(workers: Workers) -> set[str]:
    return {name for name, state in workers.states().items() if state == ("done", "ok")}


def test_due_rows_do_not_wait_for_an_instance_whose_workers_are_all_at_long_runs(
    make: Make, rows: WaitingRows, tmp_path: Path
) -> None:
    """Also where others come again and again while it has some."""
    workers = make(instance="busy")
    workers.start()
    workers.warm()
    entered, go_on = tmp_path / "entered", tmp_path / "go-on"
    workers.submit("long", do=f"tell {entered} await {go_on}")
    workers.until(entered.exists)
    ids = ["due-0", "due-1"]
    add(rows, workers, *ids)
    workers.until(lambda: claimed(rows) == ids)

    def given_back() -> bool:
        if claimed(rows) == ids and len(ids) < 4:
            ids.append(f"due-{len(ids)}")
            add(rows, workers, ids[-1])
        return not claimed(rows)

    workers.until(given_back, 60.0)
    other = make(instance="idle")
    other.start()
    other.until(lambda: workers.turn() or done(other) == set(ids))
    assert rows.query(f"SELECT sum(lost_claims)::int FROM {rows.schema}.requests") == [(0,)]
    assert workers.supervisor.in_hand == 1
    # Where the others are as busy, what is due goes before the next long run.
    other.supervisor.close(30)
    entered_next, go_on_next = tmp_path / "entered-next", tmp_path / "go-on-next"
    workers.submit("next", do=f"tell {entered_next} await {go_on_next}")
    add(rows, workers, "last")
    go_on.touch()
    workers.until(lambda: "last" in done(workers))
    workers.until(entered_next.exists)
    go_on_next.touch()
    workers.until(lambda: workers.supervisor.in_hand == 0)
    workers.check_effects()


@pytest.mark.long
def test_due_rows_do_not_wait_for_an_instance_whose_workers_reach_no_database(
    make: Make, own_database: OwnDatabase, schema: str
) -> None:
    """Which its maintenance process reaches, and those of another instance do."""
    migrate(own_database.url, schema)
    rows = WaitingRows(own_database.url, schema)
    workers = make(instance="cut off", database_url=own_database.url)
    other = make(instance="other", database_url=own_database.url)
    workers.start()
    other.supervisor.stop_claims()
    other.start()
    lost = [backend[0] for w in workers.supervisor._pool.workers.values() for backend in w.backends]
    own_database.let_in(new=False)
    assert rows.query("SELECT pg_terminate_backend(pid) FROM unnest(%s) pid", lost) == [(True,)]
    ids = [f"due-{n}" for n in range(6)]
    add(rows, workers, *ids)
    workers.until(lambda: workers.supervisor.stats().cut_off)
    other.supervisor._pool.queue.claiming = True
    other.until(lambda: workers.turn() or done(other) == set(ids))
    assert workers.supervisor.stats().cut_off, "and not ready, though it has nothing in hand"
    workers.until(lambda: workers.supervisor.in_hand == 0)

    own_database.let_in(new=True)
    workers.until(lambda: not workers.supervisor.stats().cut_off)
    other.supervisor.stop_claims()
    add(rows, workers, "last")
    workers.until(lambda: "last" in done(workers))
    workers.check_effects()
    rows.close()
