"""Rows of types that one instance does not know are left to those that do, whatever Redis says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from feedback.contract.record import claim_of
from processing.cluster.instances import Registration
from processing.ipc.frames import DeclareApp, DueRows, Heartbeat, LimitsFound, WantRows
from tests.support.maintenance import MaintenanceProcess, StartMaintenance
from tests.support.private_valkey import PrivateValkey
from tests.support.waiting import eventually
from tests.support.waiting_rows import WaitingRows

NOWHERE = "redis://127.0.0.1:1/0"
LEFT = 30.0


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[PrivateValkey]:
    found = PrivateValkey(tmp_path)
    yield found
    found.stop()


def claims(maintenance: MaintenanceProcess, rows: WaitingRows, count: int) -> list[str]:
    """What the claim number `count` brings, which has a row of its own type to find."""
    rows.add(f"own-{count}", type="own")
    maintenance.send(WantRows(count, 10, {}, []))
    frame = maintenance.wait_for(DueRows, count)
    return [claim_of(record)[0] for record, _ in frame.rows]


def test_without_redis_only_what_is_long_overdue_is_taken(
    ready: StartMaintenance, rows: WaitingRows
) -> None:
    rows.add("due", type="theirs")
    maintenance = ready(redis_url=NOWHERE, unknown_left=LEFT)
    maintenance.send(DeclareApp(("own",), (), ()))
    assert claims(maintenance, rows, 1) == ["own-1"]
    rows.query(
        f"UPDATE {rows.schema}.requests SET due_at = now() - interval '{LEFT + 1} s'"
        " WHERE id = 'due'"
    )
    maintenance.send(WantRows(2, 10, {}, []))
    [(record, _)] = maintenance.wait_for(DueRows, 2).rows
    assert claim_of(record)[0] == "due"


def test_before_its_types_are_told_nothing_is_taken_that_is_just_due(
    ready: StartMaintenance, rows: WaitingRows
) -> None:
    """Its main process has just started, or this process takes the place of one that died."""
    rows.add("due", type="theirs")
    rows.add("late", type="others", due_in=-LEFT - 1)
    maintenance = ready(unknown_left=LEFT)
    maintenance.send(WantRows(1, 10, {}, []))
    [(record, _)] = maintenance.wait_for(DueRows).rows
    assert claim_of(record)[0] == "late"
    assert rows.columns("due", "token", "run") == (None, 0)


def test_who_knows_a_type_is_not_forgotten_while_redis_is_away(
    ready: StartMaintenance, rows: WaitingRows, valkey: PrivateValkey, prefix: str,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    with valkey.client() as client:
        Registration(client, prefix, "other", ttl=600).renew({"types": ["theirs"]})
        maintenance = ready(redis_url=valkey.url)
        maintenance.send(DeclareApp(("own",), (), ()))
        maintenance.send(Heartbeat({"types": ["own"], "at_once": {}}))
        maintenance.wait_for(LimitsFound)
    rows.add("due", type="theirs")
    assert claims(maintenance, rows, 1) == ["own-1"]
    valkey.pause()
    said: list[str] = []
    eventually(lambda: said.append(capfd.readouterr().err) or "Redis is away" in "".join(said))
    assert claims(maintenance, rows, 2) == ["own-2"]
    valkey.resume()
