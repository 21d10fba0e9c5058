"""A maintenance process that takes the place of one that died finds the journal changed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from tests.support.proxy import Proxy
from tests.support.waiting_rows import WaitingRows
from tests.support.workers import Workers

Make = Callable[..., Workers]


def killed(workers: Workers) -> None:
    """Kills the maintenance process and waits for the next one's look at the journal."""
    child = workers.supervisor.maintenance._child
    assert child is not None
    os.kill(child.pid, signal.SIGKILL)
    workers.until(lambda: workers.supervisor.maintenance._child is not child)


@pytest.mark.parametrize("migrates", [pytest.param(False, marks=pytest.mark.long), True])
def test_housekeeping_goes_on_with_a_journal_that_a_newer_version_has_upgraded(
    make: Make, rows: WaitingRows, migrates: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    """As workers do, in a rolling upgrade: `oncepool migrate` comes first."""
    workers = make(migrate_on_start=migrates)
    workers.start()
    rows.query(
        f"INSERT INTO {rows.schema}.schema_version (version, name)"
        f" SELECT max(version) + 1, 'next' FROM {rows.schema}.schema_version"
    )
    killed(workers)
    rows.add("due", type="fragile", payload=b'{"table": "%s", "do": ""}' % workers.table.encode())
    workers.until(lambda: workers.states()["due"] == ("done", "ok"))
    assert workers.supervisor.fatal is None
    assert workers.supervisor.database_up
    assert capfd.readouterr().err.count("a newer version has upgraded the journal") == 1


@pytest.mark.parametrize("migrates", [pytest.param(False, marks=pytest.mark.long), True])
def test_intake_is_closed_while_the_journal_is_gone(
    make: Make, rows: WaitingRows, migrates: bool, caplog: pytest.LogCaptureFixture
) -> None:
    workers = make(migrate_on_start=migrates)
    workers.start()
    rows.query(f"ALTER TABLE {rows.schema}.schema_version RENAME TO elsewhere")
    killed(workers)
    workers.until(lambda: not workers.supervisor.database_up)
    assert workers.supervisor.fatal is None
    workers.until(lambda: "the journal can't be used" in caplog.text)
    rows.query(f"ALTER TABLE {rows.schema}.elsewhere RENAME TO schema_version")
    workers.until(lambda: workers.supervisor.database_up)
    workers.submit("again")
    workers.until(lambda: workers.states().get("again") == ("done", "ok"))


def test_one_that_was_never_there_and_cannot_be_used_is_fatal(
    make: Make, rows: WaitingRows, proxy: Proxy, through: str
) -> None:
    """Also for the next process: the first one died before it could look."""
    workers = make(database_url=through)
    proxy.cut()
    workers.supervisor.start_maintenance()
    workers.until(lambda: workers.supervisor.maintenance.ready)
    workers.supervisor.start_workers()
    rows.query(f"ALTER TABLE {rows.schema}.schema_version RENAME TO elsewhere")
    child = workers.supervisor.maintenance._child
    assert child is not None
    os.kill(child.pid, signal.SIGSTOP)
    proxy.mend()
    os.kill(child.pid, signal.SIGKILL)
    workers.until(lambda: workers.supervisor.fatal)
    assert "the journal can't be used" in str(workers.supervisor.fatal)
