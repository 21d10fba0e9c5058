"""Requests of one key run in their order, whatever becomes of workers and connections."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from feedback.contract.record import Record
from feedback.journal.migrations import migrate
from tests.support.own_database import OwnDatabase
from tests.support.proxy import Proxy
from tests.support.workers import Workers

KEYS = 6
EACH = 150
FAULTS = 18


def record(table: str, key: int, number: int, do: str) -> Record:
    name = f"{key}-{number}"
    payload = orjson.dumps({"table": table, "number": number, "do": do})
    headers: list[tuple[str, bytes | None]] = [("ce_id", name.encode()), ("ce_type", b"numbered")]
    return ("topic", key, number, 0, f"key-{key}".encode(), payload, headers, "numbered", None)


def suspected(workers: Workers) -> bool:
    """Whether a request that a worker died under has not been settled yet."""
    pool = workers.supervisor._pool
    in_flight = (chunk for worker in pool.workers.values() for chunk in worker.chunks)
    return pool.lanes.alone_waits or any(chunk.suspect for chunk in in_flight)


@pytest.mark.long  # the chaos run shows it too
def test_workers_die_and_answers_to_commits_are_lost(
    make: Callable[..., Workers],
    own_database: OwnDatabase,
    proxy: Proxy,
    schema: str,
    tmp_path: Path,
) -> None:
    migrate(own_database.url, schema)
    url = proxy.before(own_database.url)
    workers = make(database_url=url, ordering="key", workers=3)
    table = f"{schema}.numbered"
    workers.query(f"CREATE TABLE {table} (id text, key text, number int, at bigserial)")
    workers.start()
    chance = random.Random(7)
    harmful = {
        (key, chance.randrange(EACH)): f"exit-once {tmp_path / str(key)}" for key in range(3)
    }
    workers.supervisor.submit(
        [
            record(table, key, number, harmful.get((key, number), "sleep 0.002"))
            for number in range(EACH)
            for key in range(KEYS)
        ]
    )

    def done() -> int:
        [(count,)] = workers.query(f"SELECT count(*)::int FROM {table}")
        return int(count)

    for fault in range(FAULTS):
        before, lost = done(), proxy.lost
        if fault % 3 == 0:
            # A request that meets two of these kills would be dead, as it should be. One that ends
            # its worker itself may be killed just before it does.
            workers.until(lambda: not suspected(workers))
            os.kill(chance.choice(workers.pids), signal.SIGKILL)
        elif fault % 3 == 1:
            proxy.lose_answer(b"COMMIT")
            workers.until(lambda lost=lost: proxy.lost > lost)
        else:
            workers.until(lambda: own_database.end_connections("oncepool worker", most=1) == 1)
        workers.until(lambda before=before: done() > before)
    assert workers.supervisor.in_hand > 0, "the faults came after the work"
    workers.finish(60)
    rows = workers.query(f"SELECT id, key, number FROM {table} ORDER BY at")
    assert len(rows) == len({row[0] for row in rows}), "an effect happened twice"
    states = workers.states()
    dead = {name for name, state in states.items() if state == ("dead", "worker_died")}
    assert dead <= {f"{key}-{number}" for key, number in harmful}, "others met two deaths"
    for key in range(KEYS):
        numbers = [number for _, of, number in rows if of == f"key-{key}"]
        assert numbers == [n for n in range(EACH) if f"{key}-{n}" not in dead], key
    assert {state for name, state in states.items() if name not in dead} == {("done", "ok")}
