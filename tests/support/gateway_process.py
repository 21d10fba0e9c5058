"""A gateway as a real process, and who calls it."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any, Self

import httpx

from tests.support.programs import started
from tests.support.waiting import eventually

WAIT = 60.0
NO_SERVICES = {
    "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
    "ONCEPOOL_KAFKA_TOPICS": "requests",
    "ONCEPOOL_REDIS_URL": "redis://127.0.0.1:1",
}
"""Of a gateway that has nobody behind it."""


class GatewayProcess:
    """``oncepool gateway`` on a free port."""

    def __init__(
        self,
        environment: dict[str, str],
        log: Path,
        *,
        files: tuple[int, int] | None = None,
        **more: str,
    ) -> None:
        """`more` are settings of the gateway, without their prefix; `files` as `started` has it."""
        self._log = log
        given = {f"ONCEPOOL_{name.upper()}": value for name, value in more.items()}
        ours = {"ONCEPOOL_GATEWAY_PORT": "0", "ONCEPOOL_LOG_FORMAT": "console"}
        all_of_it = {**environment, **ours, **given}
        self.process = started("consumer", "gateway", environment=all_of_it, log=log, files=files)
        try:
            found = eventually(self._address, WAIT, lambda: self.log)
            self.http = httpx.Client(base_url=found or "", timeout=WAIT)
        except BaseException:
            self.process.kill()
            raise

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return self.http.base_url.host, self.http.base_url.port or 80

    def post(self, type: str, payload: Any, key: str, **headers: str) -> httpx.Response:
        """Sends a request."""
        given = {"Idempotency-Key": key} | headers
        return self.http.post(f"/requests/{type}", json=payload, headers=given)

    def state(self, id: str, wait: int = 0) -> str:
        """Of a request."""
        answer = self.http.get(f"/requests/{id}", params={"wait": wait})
        return str(answer.json().get("state", answer.status_code))

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Its exit code after a signal."""
        self.process.send_signal(number)
        return self.process.wait(WAIT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(WAIT)

    def _address(self) -> str | None:
        assert self.process.poll() is None, self.log
        found = re.search(r"gateway listens.* url=(\S+)", self.log)
        return found and found[1]
