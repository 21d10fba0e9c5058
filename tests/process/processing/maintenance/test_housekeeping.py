"""Claims whose leases run out."""

from __future__ import annotations

import psycopg
import redis

from feedback.journal.housekeeping import SWEEP_AT_ONCE
from feedback.status.redis_store import RedisStatusStore
from processing.ipc.frames import EndCalls, Park, PartAnswered
from stack import Stack
from tests.support.backends import backend_of, stopped
from tests.support.maintenance import StartMaintenance, counters, record, state_of
from tests.support.waiting import eventually

CLAIM = """
INSERT INTO {schema}.requests (id, type, state, code, run, attempt, effect, token, lease_until,
                               fingerprint, topic, partition, kafka_offset, produced_at)
SELECT id, 'card.charge', 'running', 'ok', 2, 1, 'external', 'dead-chunk',
       now() + make_interval(secs => lease), decode('0f', 'hex'), 'requests', 0, 1, now()
FROM unnest(%s::text[], %s::float[]) AS claims(id, lease)
"""


def claim(stack: Stack, schema: str, leases: dict[str, float]) -> None:
    """Claims that a dead worker has left, by the seconds that their leases still have."""
    with psycopg.connect(stack.database, autocommit=True) as database:
        database.execute(CLAIM.format(schema=schema), [list(leases), list(leases.values())])


def states(stack: Stack, schema: str) -> dict[str, tuple[str, int]]:
    with psycopg.connect(stack.database) as database:
        rows = database.execute(f"SELECT id, state, run FROM {schema}.requests").fetchall()
    return {name: (state, run) for name, state, run in rows}


def test_expired_claims_become_in_doubt_and_producers_hear_of_it(
    start: StartMaintenance, stack: Stack, schema: str, prefix: str, statuses: RedisStatusStore
) -> None:
    claim(stack, schema, {"old": -1.0, "live": 60.0})
    with psycopg.connect(stack.database, autocommit=True) as database:
        database.execute(
            f"UPDATE {schema}.requests SET status_ttl = 77, fingerprint = '\\xabcd'".encode()
        )
    maintenance = start(schema=schema, sweep_interval=0.1)
    maintenance.ready()

    (status,) = eventually(lambda: (got := statuses.read(["old"])) != [None] and got)

    assert status is not None
    assert (status.state, status.code, status.run) == ("in_doubt", "worker_died", 2)
    assert status.error is not None
    assert "lease ran out" in status.error
    assert status.fingerprint == "abcd"
    key = f"{prefix}:status:old"
    assert 60 < redis.Redis.from_url(stack.redis).ttl(key) <= 77
    assert states(stack, schema) == {"old": ("in_doubt", 2), "live": ("running", 2)}
    assert statuses.read(["live"]) == [None]
    assert maintenance.stop() == 0
    assert counters(stack, schema) == {("card.charge", "in_doubt", "worker_died"): 1}


def test_calls_of_workers_that_are_gone_are_in_doubt_at_once(
    start: StartMaintenance, stack: Stack, schema: str, statuses: RedisStatusStore
) -> None:
    claim(stack, schema, {"mine": 60.0, "other": 60.0})
    with psycopg.connect(stack.database, autocommit=True) as database:
        database.execute(
            f"UPDATE {schema}.requests SET token = 'here-1' WHERE id = 'mine'".encode()
        )
    maintenance = start(schema=schema)
    maintenance.ready()
    maintenance.send(EndCalls({"here-1": "shutdown", "here-2": "worker_died"}, [], []))

    (status,) = eventually(lambda: (got := statuses.read(["mine"])) != [None] and got)

    assert status is not None
    assert (status.state, status.code, status.run) == ("in_doubt", "shutdown", 2)
    assert status.reason == "the consumer stopped while it ran"
    assert states(stack, schema) == {"mine": ("in_doubt", 2), "other": ("running", 2)}
    assert maintenance.stop() == 0
    assert counters(stack, schema) == {("card.charge", "in_doubt", "shutdown"): 1}
    with psycopg.connect(stack.database) as database:
        query = f"SELECT r.crashes, a.run, a.code FROM {schema}.requests r, {schema}.attempts a"
        rows = database.execute(f"{query} WHERE r.id = a.request_id".encode()).fetchall()
    assert rows == [(0, 2, "shutdown")]


def test_a_crash_is_counted_for_the_call_that_is_to_blame(
    start: StartMaintenance, stack: Stack, schema: str
) -> None:
    claim(stack, schema, {"culprit": 60.0, "neighbour": 60.0})
    with psycopg.connect(stack.database, autocommit=True) as database:
        database.execute(f"UPDATE {schema}.requests SET token = id".encode())
        maintenance = start(schema=schema)
        maintenance.ready()
        codes = dict.fromkeys(("culprit", "neighbour"), "worker_died")
        maintenance.send(EndCalls(codes, [], ["culprit"]))
        assert maintenance.stop() == 0
        rows = database.execute(f"SELECT id, code, crashes FROM {schema}.requests".encode())
        assert sorted(rows) == [("culprit", "worker_died", 1), ("neighbour", "worker_died", 0)]


def test_calls_that_are_ended_right_before_the_stop_are_told_in_doubt(
    start: StartMaintenance, stack: Stack, schema: str, statuses: RedisStatusStore
) -> None:
    """As at the end of the grace, when a worker was killed in a call: nothing waits in between."""
    claim(stack, schema, {"called": 60.0})
    maintenance = start(schema=schema)
    maintenance.ready()
    with psycopg.connect(stack.database, autocommit=True) as dead:
        maintenance.send(EndCalls({"dead-chunk": "shutdown"}, [backend_of(dead)], []))
        assert maintenance.stop() == 0

    assert states(stack, schema) == {"called": ("in_doubt", 2)}
    assert state_of(statuses, "called") == ("in_doubt", "shutdown")
    assert counters(stack, schema) == {("card.charge", "in_doubt", "shutdown"): 1}


def test_a_dead_workers_session_that_does_not_end_holds_up_its_call_alone(
    start: StartMaintenance, stack: Stack, schema: str
) -> None:
    """Its server process is stopped, or waits for a disk that does not answer."""
    claim(stack, schema, {"called": 60.0})
    maintenance = start(schema=schema)
    maintenance.ready()
    with psycopg.connect(stack.database, autocommit=True) as dead:
        backend = backend_of(dead)
        with stopped(backend[0]):
            maintenance.send(EndCalls({"dead-chunk": "shutdown"}, [backend], []))
            maintenance.send(EndCalls({"another": "shutdown"}, [], []))
            maintenance.send(Park(1, "parked", [record(1)], [], [], []))
            assert maintenance.wait_for(PartAnswered, timeout=30)[:2] == (1, 1)
            found = states(stack, schema)
            assert found == {"called": ("running", 2), "r-1": ("waiting", 0)}
    eventually(lambda: states(stack, schema)["called"] == ("in_doubt", 2))


def test_a_claim_that_expires_later_is_found_later(
    start: StartMaintenance, stack: Stack, schema: str
) -> None:
    maintenance = start(schema=schema, sweep_interval=0.1)
    maintenance.ready()

    claim(stack, schema, {"soon": 0.5})

    eventually(lambda: states(stack, schema)["soon"] == ("in_doubt", 2))


def test_two_processes_sweep_each_claim_once(
    start: StartMaintenance, stack: Stack, schema: str
) -> None:
    processes = [start(schema=schema, instance=f"here-{n}", sweep_interval=0.05) for n in range(2)]
    for process in processes:
        process.ready()
    claim(stack, schema, {f"c-{n}": -1.0 for n in range(1500)})

    eventually(lambda: set(states(stack, schema).values()) == {("in_doubt", 2)})

    assert [process.stop() for process in processes] == [0, 0]
    assert counters(stack, schema) == {("card.charge", "in_doubt", "worker_died"): 1500}


def test_many_expired_claims_are_ended_without_a_pause(
    start: StartMaintenance, stack: Stack, schema: str
) -> None:
    """A sweep takes some at a time, and the next one comes at once."""
    claim(stack, schema, {f"old-{n}": -1.0 for n in range(2 * SWEEP_AT_ONCE + 1)})
    start(schema=schema, sweep_interval=3600.0).ready()
    eventually(lambda: {state for state, _ in states(stack, schema).values()} == {"in_doubt"}, 30)
