"""A gateway beside the group, with its callers: a share of the requests goes through it.

It reaches Kafka, the database and Redis through the same gates as consumers do, and its callers
reach it through a gate of its own. What is ended here is replaced, at the same address.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from stack.places import free_port
from tests.chaos.real.frozen import held
from tests.chaos.real.gateway_callers import GatewayCallers
from tests.chaos.real.gateway_facts import GatewayFacts
from tests.chaos.real.members import ROOT
from tests.chaos.real.place import Place
from tests.chaos.real.producer import Copy, SendLedger
from tests.chaos.real.topic import all_messages
from tests.chaos.real.traffic import Item, Kind
from tests.support.proxy import Proxy

MOST = 100
"""Requests that are open here at once; what is beyond goes another way."""
GRACE = 10.0


class GatewaySide:
    """One gateway process at a time, and who calls it."""

    def __init__(
        self, place: Place, name: str, folder: Path, share: float, ledger: SendLedger, *,
        patience: float,
    ) -> None:  # fmt: skip
        """`name`: topic, schema and prefix; `share` of the requests; `ledger`: the producer's."""
        self._place, self._name, self._folder, self._share = place, name, folder, share
        self._ledger = ledger
        self._random = random.Random(name)
        self._port = free_port(set())
        self.gate = Proxy("127.0.0.1", self._port)
        self._callers = GatewayCallers(f"http://127.0.0.1:{self.gate.port}", ledger, patience)
        self._process: subprocess.Popen[bytes] | None = None
        self._wrong: list[str] = []

    def start(self) -> None:
        self._start()
        self._callers.start()

    @property
    def calls(self) -> int:
        """Requests without their answer."""
        return len(self._callers.pending)

    @property
    def pending(self) -> list[str]:
        return sorted(self._callers.pending)

    def take(self, item: Item) -> bool:
        """Sends it by HTTP, where it is this one's share and there is room."""
        if self._random.random() >= self._share or self.calls >= MOST:
            return False
        self._callers.take(item)
        return True

    def quiet(self) -> None:
        """What is pending is not waited for longer than once."""
        self._callers.quiet()

    def replace(self, number: signal.Signals) -> str:
        """Ends the gateway by a signal and starts another; what was seen of it."""
        open_ = self.calls
        process = self._at_work()
        if process.poll() is not None:
            self._wrong.append(f"gateway: exit code {process.returncode} by itself")
        process.send_signal(number)
        code = process.wait(60)
        if number != signal.SIGKILL and code != 0:
            self._wrong.append(f"gateway: exit code {code} after {number.name}")
        self._start()
        return f"gateway {process.pid}, {open_} requests open"

    def freeze(self, seconds: float) -> str:
        """Stops it in its tracks for a while."""
        seen = held(self._at_work().pid, seconds)
        return f"gateway, {seen}, {self.calls} requests open" if seen else ""

    def finish(self) -> list[str]:
        """Asks for all statuses once more, and ends the gateway in order; what went wrong."""
        self._callers.look(60.0)
        process = self._at_work()
        if process.poll() is None:
            process.terminate()
            if (code := process.wait(60)) != 0:
                self._wrong.append(f"gateway: exit code {code} at the end")
        else:
            self._wrong.append(f"gateway: exit code {process.returncode} by itself")
        return self._wrong

    def facts(self) -> GatewayFacts:
        """What the callers know; enters the messages that came of it into the ledger."""
        self._ledger.copies += self._copies()
        return self._callers.facts

    def end(self) -> None:
        """Ends all of it."""
        self._callers.end()
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(30)
        self.gate.cut()

    def _copies(self) -> list[Copy]:
        """Messages of its requests that no other producer has sent, as they lie in the topic.

        When a later one was sent is not known better than by the POST of the same number.
        """
        known = {(copy.partition, copy.offset) for copy in self._ledger.copies}
        found: list[Copy] = []
        for name, partition, offset, at in messages(self._place.kafka, self._name):
            if name in self._callers.facts.ids and (partition, offset) not in known:
                found.append(Copy(name, Kind.REQUEST, 0, partition, offset, at))
        found.sort(key=lambda copy: (copy.id, copy.at, copy.offset))
        numbers: dict[str, int] = {}
        for copy in found:
            copy.number = number = numbers.get(copy.id, 0)
            posts = self._callers.posts[copy.id]
            copy.at = max(copy.at, posts[min(number, len(posts) - 1)])
            numbers[copy.id] = number + 1
        return found

    def _at_work(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def _start(self) -> None:
        with (self._folder / "gateway.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "consumer", "gateway"],
                cwd=ROOT, env={**os.environ, **self._environment()}, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def _environment(self) -> dict[str, str]:
        place, name = self._place, self._name
        return {
            "ONCEPOOL_GATEWAY_PORT": str(self._port),
            "ONCEPOOL_GATEWAY_SEND_TIMEOUT": "5",
            "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": place.kafka,
            "ONCEPOOL_KAFKA_TOPICS": name,
            "ONCEPOOL_DATABASE_URL": place.gated_database,
            "ONCEPOOL_DATABASE_SCHEMA": name,
            "ONCEPOOL_REDIS_URL": place.redis_url,
            "ONCEPOOL_REDIS_PREFIX": name,
            "ONCEPOOL_GRACE": str(GRACE),
            "ONCEPOOL_LOG_FORMAT": "json",
            "CHAOS_SCHEMA": name,
            **({"ONCEPOOL_DATABASE_PREPARE": "false"} if place.pooler else {}),
        }


def messages(kafka: str, topic: str) -> list[tuple[str, int, int, float]]:
    """Id, partition, offset and time (seconds since the epoch) of each message with an id."""
    found: list[tuple[str, int, int, float]] = []
    for message in all_messages(kafka, topic):
        name = dict(message.headers() or []).get("ce_id") or b""
        text = name.decode(errors="replace") if isinstance(name, bytes) else name
        found.append((text, message.partition() or 0, message.offset() or 0,
                      message.timestamp()[1] / 1000))  # fmt: skip
    return found
