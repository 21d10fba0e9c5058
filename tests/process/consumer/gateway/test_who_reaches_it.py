"""Where a gateway listens: without API keys on this machine alone, and its log says so."""

from __future__ import annotations

import json
from pathlib import Path

import psutil

from consumer.config.gateway_keys import hash_of
from tests.support.gateway import KEY
from tests.support.gateway_process import NO_SERVICES, WAIT, GatewayProcess
from tests.support.programs import started
from tests.support.waiting import eventually

ALL = "0.0.0.0"
WARNING = "no API keys: any program of this machine may send and operate, and nobody else"


def listens_on(gateway: GatewayProcess) -> set[tuple[str, int]]:
    """Addresses that its process takes connections at."""
    found = psutil.Process(gateway.process.pid).net_connections("inet")
    return {tuple(one.laddr) for one in found if one.status == psutil.CONN_LISTEN}


def test_without_keys_it_listens_on_loopback_alone_and_says_so(tmp_path: Path) -> None:
    with GatewayProcess(NO_SERVICES, tmp_path / "log") as gateway:
        eventually(lambda: WARNING in gateway.log, WAIT, lambda: gateway.log)
        assert listens_on(gateway) == {("127.0.0.1", gateway.address[1])}
        assert gateway.http.get("/openapi.json").status_code == 200
        for headers in ({"Host": "gateway.example"}, {"X-Forwarded-For": "10.0.0.9"}):
            assert gateway.http.get("/openapi.json", headers=headers).status_code == 403


def test_without_keys_it_does_not_begin_where_others_would_reach_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    place = {"ONCEPOOL_GATEWAY_HOST": ALL, "ONCEPOOL_GATEWAY_PORT": "0"}
    process = started("consumer", "gateway", environment=NO_SERVICES | place, log=log)
    try:
        assert process.wait(WAIT) == 1, log.read_text()
    finally:
        process.kill()
    said = log.read_text().splitlines()[-1]
    assert said.startswith(
        f"oncepool: gateway_host ({ALL}) is open to others and gateway_keys is empty"
    )
    assert "make a key with `oncepool gateway --new-key NAME`, or use 127.0.0.1" in said
    assert "gateway listens" not in log.read_text()

    keys = json.dumps({"shop": {"hash": hash_of(KEY), "roles": ["send"]}})
    with GatewayProcess(
        NO_SERVICES, tmp_path / "open", gateway_host=ALL, gateway_keys=keys
    ) as gateway:
        assert listens_on(gateway) == {(ALL, gateway.address[1])}
        assert gateway.http.get("/requests/r").status_code == 401
        assert WARNING not in gateway.log
