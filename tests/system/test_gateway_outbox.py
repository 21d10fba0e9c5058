"""A gateway that writes requests into an outbox, and what becomes of them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import psycopg
import redis

from feedback.contract.states import State
from feedback.outbox.migrations import migrate
from feedback.status.opening import open_store
from feedback.status.status import StatusFields, StatusWrite
from stack import Stack
from tests.support.gateway_process import WAIT, GatewayProcess
from tests.support.kafka_proxy import LoneBrokerProxy
from tests.support.outbox import Outbox, new_outbox
from tests.support.own_database import OwnDatabase
from tests.support.proxy import Proxy
from tests.support.relay_process import RelayProcess
from tests.support.service import Bench
from tests.support.waiting import eventually

NOWHERE = "127.0.0.1:1"


def test_from_an_outbox_to_one_effect_also_of_what_came_while_the_brokers_were_away(
    bench: Bench, stack: Stack, own_database: OwnDatabase, tmp_path: Path
) -> None:
    paid = {"table": bench.table, "n": 7}
    with (
        new_outbox(own_database.url, "gate_outbox") as outbox,
        LoneBrokerProxy.of(stack.kafka) as broker,
    ):
        environment = bench.environment | {
            "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{broker.port}",
            "ONCEPOOL_OUTBOX_DATABASE_URL": outbox.url,
            "ONCEPOOL_OUTBOX_SCHEMA": outbox.schema,
        }
        log = tmp_path / "gateway.log"
        consumer = bench.start(wait=False)
        with (
            RelayProcess(environment, tmp_path / "relay.log") as relay,
            GatewayProcess(environment, log, gateway_outbox="on") as gateway,
        ):
            first = gateway.post("effect", paid, "order-1")
            assert (first.status_code, first.json()["state"]) == (202, "accepted"), first.text
            assert gateway.http.get(first.headers["Location"]).status_code == 200
            consumer.running()
            relay.is_ready()
            assert gateway.state("order-1", wait=50) == "done"

            broker.cut()
            for _ in range(2):
                sent = gateway.post("effect", paid, "order-2")
                assert (sent.status_code, sent.json()["state"]) == (202, "accepted"), sent.text
            assert gateway.post("effect", {**paid, "n": 8}, "order-2").status_code == 422
            assert gateway.http.get("/readyz").status_code == 200
            seen = gateway.http.get("/requests/order-2").json()
            assert (seen["state"], seen["code"]) == ("accepted", "unsent")
            broker.mend()
            waited = gateway.post("effect", paid, "order-2", prefer="wait=50")
            assert (waited.status_code, waited.json()["state"]) == (200, "done"), waited.text

            bench.check_books({"order-1", "order-2"})
            _is_forgotten_by_all_but(outbox, bench)
            for key in ("order-1", "order-2"):
                again = gateway.post("effect", paid, key)
                assert (again.status_code, again.json()["result"]) == (200, {"n": 7}), again.text
            assert (relay.stop(), gateway.stop()) == (0, 0), gateway.log
    assert sorted(bench.query(f"SELECT id FROM {bench.table}")) == [("order-1",), ("order-2",)]


def _is_forgotten_by_all_but(outbox: Outbox, bench: Bench) -> None:
    """Once the relay has told the outbox, Redis and the journal lose them."""
    ended = "SELECT FROM :schema.all_requests WHERE state = 'done'"
    eventually(lambda: len(outbox.rows(ended)) == 2, WAIT)
    bench.query(f"DELETE FROM {bench.schema}.requests")
    prefix = bench.environment["ONCEPOOL_REDIS_PREFIX"]
    with redis.Redis.from_url(bench.environment["ONCEPOOL_REDIS_URL"]) as client:
        keys = [f"{prefix}:status:order-{n}" for n in (1, 2)]
        assert client.delete(*keys) == len(keys)


def test_with_an_outbox_a_request_is_safe_before_it_is_sent(
    bench: Bench, stack: Stack, own_database: OwnDatabase, tmp_path: Path
) -> None:
    outbox = Outbox(own_database.url, "gate_outbox")
    with psycopg.connect(own_database.url, autocommit=True) as connection:
        migrate(connection, outbox.schema, [])
    with Proxy.of(own_database.url) as proxy:
        environment = bench.environment | {"ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": NOWHERE}
        more = {
            "gateway_outbox": "on",
            "outbox_database_url": proxy.before(own_database.url),
            "outbox_schema": outbox.schema,
        }
        with GatewayProcess(environment, tmp_path / "gateway.log", **more) as gateway:
            for _ in range(2):
                sent = gateway.post("effect", {"n": 1}, "order-17")
                assert (sent.status_code, sent.json()["state"]) == (202, "accepted"), sent.text
            (row,) = outbox.rows()
            assert (row["id"], bytes(row["payload"])) == ("order-17", b'{"n":1}')
            seen = gateway.http.get("/requests/order-17").json()
            assert (seen["state"], seen["code"]) == ("accepted", "unsent")
            assert gateway.post("effect", {"n": 2}, "order-17").status_code == 422
            proxy.hang()
            assert gateway.post("effect", {"n": 1}, "order-18").status_code == 503
            proxy.mend()
            eventually(lambda: gateway.post("effect", {"n": 1}, "order-18").is_success, WAIT)
            assert {row["id"] for row in outbox.rows()} == {"order-17", "order-18"}
    outbox.connection.close()


def test_with_an_outbox_a_run_that_could_not_be_made_is_no_answer(
    bench: Bench, own_database: OwnDatabase, tmp_path: Path
) -> None:
    """Its relay sends it again: whoever took it for one would hear of its end from nobody."""
    outbox = Outbox(own_database.url, "gate_outbox")
    with psycopg.connect(own_database.url, autocommit=True) as connection:
        migrate(connection, outbox.schema, [])
    environment = bench.environment
    store = open_store(environment["ONCEPOOL_REDIS_URL"], environment["ONCEPOOL_REDIS_PREFIX"])
    with Proxy.of(own_database.url) as proxy:
        more = {
            "gateway_outbox": "on",
            "outbox_database_url": proxy.before(own_database.url),
            "outbox_schema": outbox.schema,
        }
        with GatewayProcess(environment, tmp_path / "gateway.log", **more) as gateway:
            for name in ("open", "ended", "another"):
                assert gateway.post("effect", {}, name).status_code == 202
            outbox.run(
                "WITH gone AS (DELETE FROM :schema.requests WHERE id = 'ended' RETURNING *)"
                " INSERT INTO :schema.finished (seq, created_at, settled_at, sends, id, type,"
                " sender, state, code, fingerprint) SELECT seq, created_at, now(), 1, id, type,"
                " sender, 'failed', 'database_unavailable', fingerprint FROM gone"
            )
            codes = {
                "open": "database_unavailable",
                "ended": "shutdown",
                "another": "handler_error",
            }
            store.write([_said(name, code) for name, code in codes.items()])
            waited = gateway.post("effect", {}, "open", prefer="wait=1")
            assert (waited.status_code, waited.json()["state"]) == (202, "accepted"), waited.text
            assert waited.headers["Retry-After"] == "1"
            assert [gateway.state(name) for name in codes] == ["accepted", "failed", "failed"]
            store.write([_said("open", "ok", State.DONE)])
            assert gateway.state("open", wait=50) == "done"
            store.write([_said("away", "shutdown")])
            proxy.hang()
            assert gateway.http.get("/requests/away").status_code == 503
    store.close()
    outbox.connection.close()


def _said(name: str, code: str, state: State = State.FAILED) -> StatusWrite:
    fields = StatusFields(name, "effect", state, 1, code, 1, at=datetime.now(UTC))
    return StatusWrite.of(fields, ttl=600)
