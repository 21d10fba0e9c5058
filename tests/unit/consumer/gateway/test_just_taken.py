"""What is asked for right after it was taken, and what is looked for before."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import httpx
import pytest

from feedback.contract.states import State
from feedback.status.status import Status, StatusWrite
from tests.support.gateway import GatewayBench


def test_it_is_known_whenever_its_status_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = GatewayBench()
    written = threading.Event()
    write = bench.store.write

    def late(writes: Sequence[StatusWrite]) -> None:
        assert written.wait(30)
        write(writes)

    monkeypatch.setattr(bench.store, "write", late)

    async def scenario(http: httpx.AsyncClient) -> None:
        for here in (True, False):  # Redis; the second time it comes back after the answer
            bench.store.available = here
            sent = await http.post("/requests/a.b", json=1)
            assert sent.status_code == 202
            place = sent.headers["Location"]
            if not here:
                assert (await http.get(place)).status_code == 503
                bench.store.available = True
            seen = await http.get(place)
            assert (seen.status_code, seen.json()["state"]) == (200, "accepted")
            assert seen.json()["fingerprint"] == sent.json()["fingerprint"]
        written.set()

    bench.run(scenario)


def test_what_is_new_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = GatewayBench()
    bench.say("old", State.FAILED)
    looked: list[str] = []
    read = bench.store.read

    def noted(ids: Sequence[str]) -> list[Status | None]:
        looked.extend(ids)
        return read(ids)

    monkeypatch.setattr(bench.store, "read", noted)

    async def scenario(http: httpx.AsyncClient) -> None:
        for name, here, looks in (("new", True, 1), ("old", True, 2), ("away", False, 2)):
            bench.store.available = here
            sent = await http.post("/requests/a.b", json=1, headers={"Idempotency-Key": name})
            assert (sent.status_code, looked) == (202, [name] * looks)
            looked.clear()
        bench.store.available = True
        assert (await http.post("/requests/a.b", json=1)).status_code == 202
        assert looked == []

    bench.run(scenario)
    assert len(bench.producer.sent) == 4
