"""What may have been parked, run elsewhere and forgotten is parked again with that in mind."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from feedback.contract.record import Record
from processing.logs import get_logger
from processing.maintenance.dead_backends import DeadBackends
from processing.maintenance.reporting import Reporting
from processing.maintenance.unstarted import UnstartedRecords
from processing.maintenance.unstarted_handling import UnstartedHandling
from processing.settings import MaintenanceSettings
from stack import Stack
from tests.support.proxy import Proxy, commit_after
from tests.support.waiting_rows import WaitingRows

LOG = get_logger("test")


def unused(*_: Any) -> None:
    """Nothing is told here."""


@pytest.mark.parametrize("lost", [[], [(0, 0), (0, 0)]], ids=["unstarted", "behind a suspect"])
def test_pure_computation_that_was_parked_and_run_is_not_to_be_run_again(
    stack: Stack, schema: str, rows: WaitingRows, lost: list[tuple[int, int]]
) -> None:
    """The park has landed and its answer is lost; another instance is quicker than the next try."""
    settings = MaintenanceSettings("here", stack.database, schema, stack.redis, "p", {})
    reporting = Reporting(unused, unused, unused, 60)
    unstarted = UnstartedHandling(settings, reporting, LOG, DeadBackends(LOG))
    records: list[Record] = [
        ("requests", 0, n, 0, None, b"{}", [("ce_id", b"r-%d" % n)], kind, None)
        for n, kind in enumerate(("compute", "pay"))
    ]
    unstarted.park(UnstartedRecords(1, "parked", records, [], lost, [], pure_once=["compute"]))
    with Proxy.of(stack.database) as proxy:
        url = proxy.before(stack.database)
        proxy.wish(commit_after(b".requests ("))
        with psycopg.connect(url, autocommit=True) as line, pytest.raises(psycopg.Error):
            unstarted.park_next(line)
        assert rows.states() == {"r-0": "waiting", "r-1": "waiting"}
        rows.query(f"DELETE FROM {schema}.requests")  # as when they were computed
        with psycopg.connect(url, autocommit=True) as line:
            unstarted.park_next(line)
    found = rows.query(f"SELECT id, lost_claims FROM {schema}.requests ORDER BY id")
    assert found == [("r-0", 1), ("r-1", 0)]
