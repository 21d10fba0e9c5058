"""A relay as a real process."""

from __future__ import annotations

import http.client
import re
import signal
from pathlib import Path
from typing import Self

from stack.places import free_port
from tests.support.programs import started
from tests.support.waiting import eventually

HELD = 30.0
"""Seconds for which an answer is late, so that its relay is killed before it has it."""


class RelayProcess:
    """One `oncepool relay`."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        self.port = free_port(set())
        self._log = log
        self.process = started(
            "consumer", "relay", "--health-port", str(self.port), environment=environment, log=log
        )

    @property
    def log(self) -> str:
        """What it and those before it have said."""
        return self._log.read_text()

    def get(self, path: str) -> tuple[int, str]:
        """Status and text; 0 where nobody listens."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", f"{path}?verbose")
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    @property
    def ready_text(self) -> str:
        """What /readyz says of each thing."""
        return self.get("/readyz")[1]

    @property
    def uss(self) -> float:
        """MiB that it shares with nobody."""
        text = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text()
        found = re.findall(r"^Private_(?:Clean|Dirty): +([0-9]+) kB", text, re.MULTILINE)
        return sum(map(int, found)) / 1024

    def is_ready(self) -> None:
        """Waits until it is."""
        eventually(lambda: self.get("/readyz")[0] == 200, 60, self._log.read_text)

    def kill(self) -> None:
        """Whatever it does."""
        self.process.kill()
        self.process.wait(30)

    def stop(self) -> int:
        """Its exit code after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
