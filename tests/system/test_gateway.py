"""The gateway as a process of its own, with real services and a real consumer behind it."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import redis

from consumer.config.gateway_keys import hash_of
from stack import Stack
from tests.support import eventually
from tests.support.gateway import KEY
from tests.support.gateway_process import WAIT, GatewayProcess
from tests.support.openapi_play import play
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
def test_brokers_that_never_were_a_database_that_hangs_and_clients_that_do(
    bench: Bench, stack: Stack, tmp_path: Path
) -> None:
    """What else may be away stands in test_gateway_outages.py."""
    with Proxy.of(stack.database) as database:
        environment = bench.environment | {
            "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": NOWHERE,
            "ONCEPOOL_DATABASE_URL": database.before(stack.database),
        }
        more = {"gateway_send_timeout": "1", "gateway_client_timeout": "1"}
        with GatewayProcess(environment, tmp_path / "gateway.log", **more) as gateway:
            # No broker: the client is told, with the id under which it may try again.
            sent = gateway.http.post("/requests/effect", json=1)
            assert (sent.status_code, bool(sent.json()["id"])) == (503, True)
            assert sent.headers["Retry-After"] == "5"
            assert gateway.http.get("/readyz").status_code == 503
            assert gateway.http.get("/requests/r").status_code == 404

            database.hang()
            away = gateway.http.get("/requests/r")
            assert (away.status_code, away.headers["Retry-After"]) == (503, "5")
            database.mend()
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
