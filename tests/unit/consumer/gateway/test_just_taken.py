"""What is asked for right after it was taken."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import httpx
import pytest

from feedback.status.status import StatusWrite
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
