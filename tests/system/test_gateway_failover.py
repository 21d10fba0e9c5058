"""A gateway that is connected to a server which takes no writes any more, as after a failover."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg

from feedback.journal.migrations import migrate
from feedback.outbox.migrations import migrate as migrate_outbox
from tests.support.gateway_process import GatewayProcess
from tests.support.journal import Journal
from tests.support.own_database import OwnDatabase
from tests.support.service import Bench
from tests.support.waiting import eventually

AT_ONCE = 8


def test_it_leaves_a_server_that_is_read_only_as_soon_as_another_takes_writes(
    bench: Bench, own_database: OwnDatabase, tmp_path: Path
) -> None:
    """Its connections stand all the while: nobody ends them, as nobody ends those of a standby."""
    migrate(own_database.url, bench.schema)
    with psycopg.connect(own_database.url, autocommit=True) as connection:
        migrate_outbox(connection, "oncepool_outbox", [])
    journal = Journal(own_database.url, bench.schema)
    for n in range(2):
        journal.put(f"d{n}", "dead")
    journal.close()
    own_database.set("default_transaction_read_only", "on")
    places = {
        "ONCEPOOL_DATABASE_URL": own_database.url,
        "ONCEPOOL_OUTBOX_DATABASE_URL": own_database.url,
        "ONCEPOOL_GATEWAY_OUTBOX": "true",
    }
    with GatewayProcess(bench.environment | places, tmp_path / "gateway.log") as gateway:

        def post(n: int) -> int:
            return gateway.post("effect", {"n": n}, f"k{n}").status_code

        with ThreadPoolExecutor(AT_ONCE) as pool:  # all of its connections are made there
            assert set(pool.map(post, range(AT_ONCE))) == {503}
        assert gateway.http.post("/requests/d0/retry").status_code == 503
        ready = gateway.http.get("/readyz?verbose")
        assert ready.status_code == 503, ready.text
        assert "takes no writes" in ready.text

        own_database.set("default_transaction_read_only", "off")
        with ThreadPoolExecutor(AT_ONCE) as pool:
            assert set(pool.map(post, range(AT_ONCE, 3 * AT_ONCE))) == {202}, gateway.log
        assert gateway.http.post("/requests/d1/retry").status_code == 200
        eventually(lambda: gateway.http.get("/readyz").status_code == 200)
