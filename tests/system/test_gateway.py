"""The gateway as a process of its own, with real services and a real consumer behind it."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import psycopg
import pytest
import redis

from consumer.config.gateway_keys import hash_of
from feedback.contract.states import State
from feedback.outbox.migrations import migrate
from feedback.status.opening import open_store
from feedback.status.status import StatusFields, StatusWrite
from stack import Stack
from tests.support import eventually
from tests.support.gateway import KEY
from tests.support.gateway_process import WAIT, GatewayProcess
from tests.support.openapi_play import play
from tests.support.outbox import Outbox
from tests.support.own_database import OwnDatabase
from tests.support.produce_proxy import ProduceProxy
from tests.support.proxy import Proxy
from tests.support.service import Bench, Raw

NOWHERE = "127.0.0.1:1"


@pytest.fixture
def broker(stack: Stack) -> Iterator[ProduceProxy]:
    with ProduceProxy.of(stack.kafka) as proxy:
        yield proxy


@pytest.fixture
def gateway(bench: Bench, broker: ProduceProxy, tmp_path: Path) -> Iterator[GatewayProcess]:
    brokers = {"ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{broker.port}"}
    with GatewayProcess(bench.environment | brokers, tmp_path / "gateway.log") as made:
        yield made


def test_there_and_back(
    bench: Bench, broker: ProduceProxy, gateway: GatewayProcess, stack: Stack
) -> None:
    bench.start()
    assert gateway.http.get("/readyz").status_code == 200

    # `curl -d` says that its JSON is a form, which no handler takes: refused at once, and the id is
    # free for the request that says what it is.
    form = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}
    refused = gateway.post("effect", {"table": bench.table}, "order/17", **form)
    assert (refused.status_code, refused.json()["title"]) == (
        415,
        "This content type is not taken here",
    )
    assert "curl -H 'content-type: application/json'" in refused.json()["detail"]

    # Sent, run once, answered to whoever asks again; the journal answers where Redis has lost it.
    paid = {"table": bench.table, "n": 2**70}
    first = gateway.post("effect", paid, '"order/17"', prefer="respond-async, wait=50")
    assert (first.status_code, first.json()["result"]) == (200, {"n": 2**70})
    assert first.headers["Preference-Applied"] == "respond-async, wait=50"
    place = first.headers["Location"]
    with redis.Redis.from_url(stack.redis) as server:
        prefix = bench.environment["ONCEPOOL_REDIS_PREFIX"]
        assert server.delete(f"{prefix}:status:order/17") == 1
    assert gateway.http.get(place).json()["state"] == "done"
    assert gateway.post("effect", paid, "order/17").status_code == 200
    assert gateway.post("effect", {**paid, "n": 1}, "order/17").status_code == 422
    assert bench.query(f"SELECT id FROM {bench.table}") == [("order/17",)]

    _with_a_producer_beyond_help(bench, broker, gateway)

    # A long poll hears of the end of what runs, and is ended with a stop.
    sent = gateway.post("effect", {"table": bench.table}, "slow")
    assert (sent.status_code, sent.json()["state"]) == (202, "accepted")
    assert gateway.state("slow", wait=50) == "done"

    # Operators: cancel what waits, retry what is cancelled, make a request of a message.
    later = gateway.post(
        "effect", {"table": bench.table}, "later", **{"ce-notbefore": "2035-05-01T12:00:00Z"}
    )
    assert later.status_code == 202
    eventually(lambda: gateway.state("later") == "waiting", WAIT)
    why = {"why": "card was blocked"}
    moved = gateway.http.post("/requests/later/cancel", json=why)
    assert (moved.status_code, moved.json()["state"]) == (200, "cancelled"), moved.text
    assert gateway.state("later") == "cancelled"
    refused = gateway.http.post("/requests/later/cancel")
    assert (refused.status_code, refused.json()["state"]) == (409, "cancelled")
    assert gateway.http.post("/requests/nobody/retry").status_code == 404
    assert gateway.http.post("/requests/later/retry", json=why).status_code == 200
    assert gateway.state("later", wait=50) == "done"
    rows = bench.query(
        f"SELECT who, why FROM {bench.schema}.transitions WHERE request_id = 'later'"
    )
    assert rows == [("gateway:local", "card was blocked")] * 2

    Raw(bench).send(None, {"ce_type": b"effect"}, b'{"table": "%b"}' % bench.table.encode())
    letters = eventually(lambda: gateway.http.get("/dead-letters").json(), WAIT)
    number = letters[0]["id"]
    mended = gateway.http.post(f"/dead-letters/{number}/retry", json={"id": "mended"})
    assert mended.status_code == 200, mended.text
    assert gateway.state("mended", wait=50) == "done"
    assert gateway.http.post(f"/dead-letters/{number}/retry").status_code in (404, 409)

    gateway.post("effect", {}, "never", **{"ce-notbefore": "2035-05-01T12:00:00Z"})
    with socket.create_connection(gateway.address, WAIT) as poll:
        poll.sendall(b"GET /requests/never?wait=60 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        # A connection that was made later has been answered, so this one is served by now.
        assert httpx.get(f"{gateway.http.base_url}/livez").status_code == 200
        assert gateway.stop() == 0, gateway.log
        assert poll.makefile("rb").readline() == b"HTTP/1.1 200 OK\r\n"
    assert "Traceback" not in gateway.log


def _with_a_producer_beyond_help(
    bench: Bench, broker: ProduceProxy, gateway: GatewayProcess
) -> None:
    """Another takes its place; what it had may have arrived, and is sent again under its key."""
    broker.spoil = 1
    unsure = gateway.post("effect", {"table": bench.table}, "unsure")
    assert (unsure.status_code, unsure.json()["id"]) == (503, "unsure")
    for key in ("unsure", "after"):
        sent = gateway.post("effect", {"table": bench.table}, key, prefer="wait=50")
        assert (sent.status_code, sent.json()["state"]) == (200, "done"), sent.text
    effects = bench.query(f"SELECT id FROM {bench.table} ORDER BY id")
    assert effects == [("after",), ("order/17",), ("unsure",)]


@pytest.mark.usefixtures("terminal")
def test_services_that_are_away(bench: Bench, stack: Stack, tmp_path: Path) -> None:
    with Proxy.of(stack.database) as database, Proxy.of(stack.redis) as store:
        environment = bench.environment | {
            "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": NOWHERE,
            "ONCEPOOL_DATABASE_URL": database.before(stack.database),
            "ONCEPOOL_REDIS_URL": store.before(stack.redis),
        }
        more = {"gateway_send_timeout": "1", "gateway_client_timeout": "1"}
        with GatewayProcess(environment, tmp_path / "gateway.log", **more) as gateway:
            # No broker: the client is told, with the id under which it may try again.
            sent = gateway.http.post("/requests/effect", json=1)
            assert (sent.status_code, bool(sent.json()["id"])) == (503, True)
            assert sent.headers["Retry-After"] == "5"
            assert gateway.http.get("/readyz").status_code == 503
            assert gateway.http.get("/requests/r").status_code == 404

            for proxy, path in ((store, "/requests/r"), (database, "/requests/r")):
                for fault in (proxy.hang, proxy.cut):
                    fault()
                    away = gateway.http.get(path)
                    assert (away.status_code, away.headers["Retry-After"]) == (503, "5")
                    proxy.mend()
                    eventually(lambda: gateway.http.get("/requests/r").status_code == 404, WAIT)
            assert gateway.http.post("/requests/r/retry").status_code == 404
            assert database.cut_connections()
            assert gateway.http.post("/requests/r/retry").status_code == 404

            # Clients that send no end of their headers, or of their body.
            headers = _slow(gateway, b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-A: ")
            body = _slow(
                gateway,
                b"POST /requests/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
            )
            assert headers == b""
            assert body.startswith(b"HTTP/1.1 408 ")
            # As when its terminal is closed, by the shell and by the kernel: in order, too.
            gateway.process.send_signal(signal.SIGHUP)
            assert gateway.stop(signal.SIGHUP) == 0, gateway.log
            assert "stopped  " in gateway.log


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
            outbox.run(
                "WITH gone AS (DELETE FROM :schema.requests WHERE id = 'order-17' RETURNING *)"
                " INSERT INTO :schema.finished (seq, created_at, settled_at, sends, id, type,"
                " sender, state, code, fingerprint, result) SELECT seq, created_at, now(), 1, id,"
                " type, sender, 'done', 'ok', fingerprint, '{\"paid\": 5}' FROM gone"
            )
            known = gateway.http.get("/requests/order-17").json()
            assert (known["state"], known["result"]) == ("done", {"paid": 5})
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


def _slow(gateway: GatewayProcess, start: bytes) -> bytes:
    """What is answered to a client that sends nothing more."""
    with socket.create_connection(gateway.address, timeout=WAIT) as client:
        client.sendall(start)
        answer = b""
        end = time.monotonic() + WAIT
        while time.monotonic() < end:
            try:
                part = client.recv(65536)
            except ConnectionResetError:
                break
            if not part:
                break
            answer += part
        return answer


@pytest.mark.long  # loads schemathesis; in memory test_openapi.py plays it
def test_it_answers_as_its_document_says(bench: Bench, tmp_path: Path) -> None:
    roles = ["send", "read", "operate"]
    keys = json.dumps({"all": {"hash": hash_of(KEY), "roles": roles}})
    with GatewayProcess(
        bench.environment, tmp_path / "gateway.log", gateway_keys=keys, gateway_max_wait="1"
    ) as gateway:
        play(str(gateway.http.base_url))
        assert "Traceback" not in gateway.log
