"""What a COMMIT has done whose answer was lost is told all the same, and once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
import pytest

from feedback.contract.counts import AnyCounts
from feedback.contract.record import Record
from feedback.contract.schedule import Schedule
from feedback.journal.claims import ClaimRequest, claim
from feedback.journal.commits import Commits
from feedback.status.status import StatusWrite
from processing.ipc.frames import EndCalls, ReleaseClaims, WantRows
from processing.logs import get_logger
from processing.maintenance.claimer import Claimer
from processing.maintenance.counters import Counters
from processing.maintenance.dead_backends import DeadBackends
from processing.maintenance.lost_calls import LostCalls
from processing.maintenance.reporting import Reporting
from processing.maintenance.ticking import Ticking
from processing.maintenance.unstarted import UnstartedRecords
from processing.maintenance.unstarted_handling import UnstartedHandling
from processing.settings import MaintenanceSettings
from stack import Stack
from tests.support.claiming import reference
from tests.support.proxy import Proxy, commit_after
from tests.support.waiting_rows import WaitingRows

Line = psycopg.Connection[Any]
LOG = get_logger("test")


class Scene:
    """Keeps what is told."""

    def __init__(self, stack: Stack, schema: str, proxy: Proxy) -> None:
        self.settings = MaintenanceSettings("here", stack.database, schema, stack.redis, "p", {})
        self.ids: list[str] = []
        self.counts: Counter[tuple[str, str]] = Counter()
        self.reporting = Reporting(lambda _: None, self._publish, self._count, 60)
        self._url, self._proxy = stack.database, proxy

    def _publish(self, writes: Sequence[StatusWrite]) -> None:
        self.ids += [write.id for write in writes]

    def _count(self, counts: AnyCounts) -> None:
        self.counts.update({(state, code): n for (_, state, code), n in counts.items()})

    def twice(self, work: Callable[[Line], object], after: bytes, commits: Commits[Any]) -> None:
        """Does it with the answer to its COMMIT lost, once more, and then asks."""
        self._proxy.wish(commit_after(after))
        url = self._proxy.before(self._url)
        with psycopg.connect(url, autocommit=True) as line, pytest.raises(psycopg.Error):
            work(line)
        assert (self._proxy.lost, self.ids) == (1, [])
        with psycopg.connect(self._url, autocommit=True) as line:
            work(line)
            commits.settle(line)
            commits.settle(line)


@pytest.fixture
def scene(stack: Stack, schema: str, proxy: Proxy) -> Scene:
    return Scene(stack, schema, proxy)


def test_claims_given_back_that_gave_way(scene: Scene, rows: WaitingRows) -> None:
    claimer = Claimer(scene.settings, scene.reporting, LOG, DeadBackends(LOG))
    reference(rows, "old")
    claim(rows.connection, "here", ClaimRequest(1, 10), schema=rows.schema)
    reference(rows, "new", produced_in=-1)
    claimer.on_frame(ReleaseClaims([("old", 1)], []))
    scene.twice(claimer.give_back, b"superseded_by = lost.winner", claimer.commits)
    assert rows.states()["old"] == "superseded"
    assert (scene.ids, scene.counts) == (["old"], {("superseded", "superseded"): 1})


def test_older_ones_and_unreadable_ones_that_a_claim_ends(scene: Scene, rows: WaitingRows) -> None:
    claimer = Claimer(scene.settings, scene.reporting, LOG, DeadBackends(LOG))
    reference(rows, "old", token="gone:1")
    rows.add("bad")
    rows.query(f"UPDATE {rows.schema}.requests SET headers = '[1]' WHERE id = 'bad'")
    rows.query(f"UPDATE {rows.schema}.requests SET lease_until = due_at WHERE id = 'old'")
    reference(rows, "new", produced_in=-1)
    claimer.learn(["effect"])
    claimer.on_frame(WantRows(5, 10, {}, []))

    def work(line: Line) -> None:
        claimer.give_back(line)
        claimer.claim(line)

    scene.twice(work, b"lost_claims = r.lost_claims + (r.token IS NOT NULL)", claimer.commits)
    assert rows.states() == {"old": "superseded", "bad": "dead", "new": "waiting"}
    assert sorted(scene.ids) == ["bad", "old"]
    assert scene.counts == {("superseded", "superseded"): 1, ("dead", "malformed"): 1}


def test_calls_in_doubt(scene: Scene, rows: WaitingRows) -> None:
    calls = LostCalls(scene.settings, scene.reporting, LOG, DeadBackends(LOG))
    rows.add("call", state="running", effect="external", token="chunk")
    calls.gone(EndCalls({"chunk": "shutdown"}, [], []))
    scene.twice(calls.settle, b"state = 'in_doubt'", calls.commits)
    assert rows.states() == {"call": "in_doubt"}
    assert (scene.ids, scene.counts) == (["call"], {("in_doubt", "shutdown"): 1})


def test_a_failed_one_that_is_parked_again_and_replaces_an_older_one(
    scene: Scene, rows: WaitingRows
) -> None:
    unstarted = UnstartedHandling(scene.settings, scene.reporting, LOG, DeadBackends(LOG))
    reference(rows, "old")
    reference(rows, "again", state="failed", produced_in=-1)
    rows.query(f"UPDATE {rows.schema}.requests SET due_at = NULL WHERE id = 'again'")
    names: list[tuple[str, bytes | None]] = [
        ("ce_id", b"again"), ("ce_type", b"effect"), ("ce_reference", b"k"),
    ]  # fmt: skip
    record: Record = ("requests", 0, 1, 0, None, b"{}", names, "effect", None)
    unstarted.park(UnstartedRecords(1, "parked", [record], [], [], []))
    scene.twice(unstarted.park_next, b"superseded_by = r.id", unstarted.commits)
    assert rows.states() == {"old": "superseded", "again": "waiting"}
    assert sorted(scene.ids) == ["again", "old"]
    assert scene.counts == {("superseded", "superseded"): 1, ("waiting", "parked"): 1}


def test_ticks_of_schedules(scene: Scene, rows: WaitingRows) -> None:
    ticking = Ticking(scene.settings, scene.reporting, LOG)
    ticking.declare([Schedule("m", "report", "* * * * *", "UTC")])
    ticking.make(rows.connection)
    rows.query(
        f"UPDATE {rows.schema}.schedules SET decided_until = now() - interval '1 minute',"
        " seen_at = now()"
    )
    scene.twice(ticking.make, b".schedules", ticking.commits)
    made = sorted(rows.states())
    assert made
    assert sorted(scene.ids) == made
    assert scene.counts == {("waiting", "scheduled"): len(made)}


def test_counts_of_what_did_not_begin_did_not_land_or_did(
    rows: WaitingRows, proxy: Proxy, through: str
) -> None:
    counters = Counters()
    for statement in (b"BEGIN", b"INTO", b"COMMIT"):
        counters.add({("a", "done", "ok"): 1}, 0.0)
        lost = proxy.lose_answer(statement)
        with psycopg.connect(through, autocommit=True) as line, pytest.raises(psycopg.Error):
            counters.write(line, rows.schema, LOG)
        assert lost.fulfilled.is_set()
    counters.commits.settle(rows.connection)
    assert not counters
    assert rows.query(f"SELECT n FROM {rows.schema}.counters") == [(3,)]
