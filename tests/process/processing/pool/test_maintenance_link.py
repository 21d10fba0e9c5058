"""What was handed over is answered for, whatever happens to the maintenance process."""

from __future__ import annotations

import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace

import psycopg
import pytest

from feedback.contract.record import Record, claim_token
from feedback.status.redis_store import RedisStatusStore
from processing.ipc.frames import (
    Counts,
    FromMaintenance,
    Heartbeat,
    MaintenanceReady,
    ProbeDatabase,
    ReleaseClaims,
    Report,
    WorkerReady,
)
from processing.logs import get_logger
from processing.pool import maintenance_link
from processing.pool.handover import Handover
from processing.pool.maintenance_link import MaintenanceLink
from processing.pool.pool import Pool
from processing.settings import MaintenanceSettings, PoolSettings
from stack import Stack
from stack.places import free_port
from tests.support.descriptors import no_more_descriptors
from tests.support.proxy import Proxy


class Link:
    """A link and the loop that turns it."""

    def __init__(self, settings: MaintenanceSettings) -> None:
        self.selector = selectors.DefaultSelector()
        self.link = MaintenanceLink(asdict(settings), self.selector, get_logger("test"))
        self.heard: list[FromMaintenance] = []
        self.link.start()

    def turn_until(self, condition: Callable[[], bool], timeout: float = 90.0) -> None:
        end = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < end, "it does not come"
            for key, mask in self.selector.select(0.05):
                key.data(mask)
            probing = not self.link.database_up
            self.heard += self.link.step(time.monotonic(), probing=probing)

    def started(self) -> int:
        """How many processes have started well."""
        return sum(isinstance(frame, MaintenanceReady) for frame in self.heard)


@pytest.fixture
def settings(stack: Stack, schema: str, prefix: str, through: str) -> MaintenanceSettings:
    log = {"log_format": "json", "level": "info"}
    return MaintenanceSettings("here-1", through, schema, stack.redis, prefix, log)


@pytest.fixture
def link(settings: MaintenanceSettings) -> Iterator[Link]:
    made = Link(settings)
    yield made
    made.link.close(5)
    made.selector.close()


def test_the_next_maintenance_answers_for_what_a_dead_one_had_not(
    link: Link, stack: Stack, schema: str, prefix: str, proxy: Proxy
) -> None:
    link.turn_until(lambda: link.link.ready is not None)
    proxy.cut()
    link.link.send(ProbeDatabase())
    link.turn_until(lambda: not link.link.database_up)
    named = [("ce_id", b"r-1"), ("ce_type", b"t")]
    link.link.refuse(
        "database_unavailable",
        [
            ("requests", 0, 1, 1_700_000_000_000, None, b"{}", [("ce_type", b"t")], "t", None),
            ("requests", 0, 2, 1_700_000_000_000, None, b"{}", named, "t", None),
        ],
    )
    link.turn_until(lambda: link.link.refusing == 1)

    child = link.link._child
    assert child is not None
    child.signal(signal.SIGKILL)
    link.turn_until(lambda: link.link._child is not child)
    proxy.mend()

    link.turn_until(lambda: link.link.refusing == 0)
    with psycopg.connect(stack.database) as database:
        found = database.execute(f"SELECT kafka_offset FROM {schema}.dead_letters").fetchall()
    assert found == [(1,)]
    store = RedisStatusStore(stack.redis, prefix, timeout=30.0)
    (status,) = store.read(["r-1"])
    assert status is not None
    assert status.code == "database_unavailable"
    store.close()


def test_of_which_types_payloads_can_be_compared_the_workers_say(
    link: Link, stack: Stack, schema: str
) -> None:
    link.link.learn(WorkerReady(["p", "own"], {}, [], (), {"p": True, "own": False}))
    records: list[Record] = [
        ("requests", 0, n, 0, None, b"%d" % n, [("ce_id", kind), ("ce_type", kind)], None, None)
        for n, kind in enumerate((b"p", b"own", b"p", b"own"))
    ]
    link.link.park("parked", records)
    link.turn_until(lambda: link.link.refusing == 0)
    with psycopg.connect(stack.database) as database:
        letters = database.execute(f"SELECT request_id FROM {schema}.dead_letters").fetchall()
    assert letters == [("p",)]


def test_what_was_to_be_parked_is_handed_to_the_next_maintenance(
    link: Link, stack: Stack, schema: str
) -> None:
    link.turn_until(lambda: link.started() == 1)
    maintenance = link.link._child
    assert maintenance is not None
    maintenance.signal(signal.SIGSTOP)
    records: list[Record] = [
        ("requests", 0, n, 0, None, b"{}", [("ce_id", b"p-%d" % n), ("ce_type", b"p")], "p", None)
        for n in range(1200)
    ]
    link.link.pure_once = ("p",)
    link.link.park("parked", records)
    link.link.park_suspects("parked", [(records[0], (1, 1), ())])
    assert link.link.refusing == 1201
    maintenance.signal(signal.SIGKILL)
    link.turn_until(lambda: link.started() == 2)
    link.turn_until(lambda: link.link.refusing == 0)
    with psycopg.connect(stack.database) as database:
        found = database.execute(
            f"SELECT code, lost_claims, count(*) FROM {schema}.requests WHERE state = 'waiting'"
            " GROUP BY 1, 2"
        ).fetchall()
    # The one before may have parked them, and others run them: of pure ones no row would be left.
    assert found == [("parked", 1, 1200)]


@pytest.mark.parametrize("owes", [False, True])
def test_one_that_is_still_starting_at_the_end_loses_only_what_it_was_given(
    settings: MaintenanceSettings, *, owes: bool
) -> None:
    link = Link(settings)
    child = link.link._child
    assert child is not None
    child.signal(signal.SIGSTOP)
    assert link.link.send(Heartbeat({}))
    if owes:
        assert link.link.send(Counts({("t", "done", ""): 1}))
    assert link.link.close(0.1) is not owes
    assert child.ended()
    link.selector.close()


@pytest.mark.long
def test_one_that_cannot_start_again_is_tried_until_it_can(settings: MaintenanceSettings) -> None:
    """Somebody else has the port of its health endpoints for a while."""
    port = free_port(set())
    made = Link(replace(settings, health_port=port))
    try:
        made.turn_until(lambda: made.started() == 1)
        child = made.link._child
        assert child is not None
        child.signal(signal.SIGKILL)
        assert child.wait(60)
        with socket.create_server(("127.0.0.1", port)):
            # Its death, and two starts that failed.
            made.turn_until(lambda: made.link.fatal or made.link._respawn._failed_starts == 3)
            assert made.link.fatal is None
        made.turn_until(lambda: made.started() == 2)
    finally:
        made.link.close(5)
        made.selector.close()


def test_only_what_waits_in_the_journal_counts_as_parked(link: Link, proxy: Proxy) -> None:
    records: list[Record] = [
        ("requests", 0, n, 0, None, b"{}", [("ce_id", b"p-%d" % n), ("ce_type", b"p")], "p", None)
        for n in range(3)
    ]
    link.turn_until(lambda: link.started() == 1)
    proxy.cut()
    link.link.park("parked", records[:2])
    link.turn_until(lambda: link.link.refusing == 0)
    assert link.link.parked == 0
    proxy.mend()
    link.turn_until(lambda: link.link.database_up)
    link.link.park("parked", [records[1]], limited=True)
    link.turn_until(lambda: link.link.refusing == 0)
    assert link.link.parked == 0
    link.link.park("parked", records[1:])
    link.turn_until(lambda: link.link.refusing == 0)
    assert link.link.parked == 2


@pytest.mark.long
def test_the_cause_that_none_can_run_outlives_the_process_that_told_it() -> None:
    log = {"log_format": "json", "level": "info"}
    away = "postgresql://nobody@127.0.0.1:1/nowhere"
    link = Link(MaintenanceSettings("here-1", away, "schema", "gopher://there", "prefix", log))
    try:
        link.turn_until(lambda: link.link.fatal is not None)
        cause = link.link.fatal
        assert "this is none of redis:" in str(cause)
        link.turn_until(lambda: not link.link.alive)
        link.link.step(time.monotonic(), probing=False)
        assert link.link.fatal == cause
    finally:
        link.link.close(5)
        link.selector.close()


def test_one_that_cannot_be_started_for_lack_of_descriptors_is_tried_again(
    link: Link, stack: Stack, schema: str
) -> None:
    """The next one is told what was counted meanwhile, and which claims are given back."""
    pool = Pool(PoolSettings(workers=1, instance="here-1"))
    handover = Handover(pool, link.link, get_logger("test"))
    token = claim_token("here-1", 7)
    link.turn_until(lambda: link.started() == 1)
    child = link.link._child
    assert child is not None
    with psycopg.connect(stack.database, autocommit=True) as database:
        database.execute(
            f"INSERT INTO {schema}.requests (kafka_offset, partition, produced_at, id, type, state,"
            " code, effect, topic, token, lease_until, due_at)"
            " SELECT 1, 0, now(), 'w', 'p', 'waiting', 'parked', 'transaction', 'requests',"
            " %s, until, until FROM (SELECT now() + interval '1 day' AS until) AS lease",
            [token],
        )
        with no_more_descriptors():
            child.signal(signal.SIGKILL)
            # Its death, and a start that failed.
            link.turn_until(lambda: link.link._respawn._failed_starts == 2)
            assert not link.link.alive
            pool.totals.report(Report(1, [], [], {}, {("p", "done", "ok"): 3}, database_up=True), 3)
            handover._send(ReleaseClaims([("w", 7)], []))
            handover.tell(["p"])
            handover.tell(["p"])
        link.turn_until(lambda: link.started() == 2)
        assert link.link.fatal is None
        handover.tell(["p"])

        def told() -> list[tuple[int, str | None]]:
            return database.execute(
                f"SELECT (SELECT sum(n) FROM {schema}.counters WHERE type = 'p')::int, token"
                f" FROM {schema}.requests WHERE id = 'w'"
            ).fetchall()

        link.turn_until(lambda: told() == [(3, None)])
        handover.tell(["p"])
        assert not pool.totals.counts


def test_a_maintenance_that_hangs_is_replaced(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance_link, "SILENCE", 0.5)
    link.turn_until(lambda: link.started() == 1)
    link.link.send(Heartbeat({}))
    link.turn_until(lambda: link.link._asked is None)
    hung = link.link._child
    assert hung is not None
    hung.signal(signal.SIGSTOP)
    link.link.send(Heartbeat({}))
    named = [("ce_id", b"p"), ("ce_type", b"pay")]
    link.link.park("parked", [("requests", 0, 1, 0, None, b"{}", named, "pay", None)])
    assert link.link.refusing_bytes > 0
    link.turn_until(lambda: link.link.refusing == 0)
    assert link.link._child is not hung
    assert link.link.refusing_bytes == 0


def test_one_that_is_still_starting_is_waited_for(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where CPU is short it takes longer to load its modules than it may say nothing later."""
    monkeypatch.setattr(maintenance_link, "SILENCE", 0.2)
    starting = link.link._child
    assert starting is not None
    starting.signal(signal.SIGSTOP)
    link.link.send(Heartbeat({}))
    asked = link.link._asked
    assert asked is not None, "it has said something already"
    link.turn_until(lambda: time.monotonic() - asked > 5 * maintenance_link.SILENCE)
    starting.signal(signal.SIGCONT)
    link.turn_until(lambda: link.started() == 1)
    assert link.link._child is starting


def test_those_that_never_say_anything_are_told_as_that(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance_link, "SILENT_START", 0.05)

    def stop_the_next() -> bool:
        if link.link._child is not None:
            link.link._child.signal(signal.SIGSTOP)
            link.link.send(Heartbeat({}))
        return link.link.fatal is not None

    link.turn_until(stop_the_next)
    assert "said nothing within" in str(link.link.fatal)
