"""Hears what producers are told: every status that is published, also one that changes nothing.

A copy of what is done, refused while the database is away, leaves no other trace: the status that
says so must not replace the one that stands. So each request names the channel of the witness.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import redis

from tests.chaos.real.pickled import Pickled

WITHOUT_ROW = frozenset({"database_unavailable", "shutdown"})
"""Codes of a `failed` that asks for another send, and stands in no row."""
FINAL = frozenset({"done", "rejected", "superseded", "dead", "cancelled"})
"""States that stay; the last two until an operator reopens them."""
WAIT = 0.5


def channel_of(name: str) -> str:
    """The channel on which the statuses of an episode are hinted at."""
    return f"{name}:told"


def channels_of_clients(prefix: str) -> str:
    """A pattern of the channels on which clients, as a gateway's, are hinted at statuses."""
    return f"{prefix}:hints:*"


class Final(NamedTuple):
    """A final status as it was said."""

    state: str
    v: str
    """Number of its run, and rank: those of later runs are greater as text."""
    entries: int
    """Size of the log of entries when it was heard: what lies behind was entered later."""


@dataclass
class Heard(Pickled):
    """What was said, and when nobody listened."""

    final: dict[str, Final] = field(default_factory=dict)
    """The first final status of each id with the state that was said last."""
    changed: list[tuple[str, Final, Final]] = field(default_factory=list)
    """Id, and two final statuses of different states, in the order in which they were said."""

    refused: Counter[str] = field(default_factory=Counter)
    """How often each id was refused without a row."""
    doubted: dict[str, float] = field(default_factory=dict)
    """When each id was first said to be in doubt, in seconds since the epoch."""
    deaf: list[tuple[float, float]] = field(default_factory=list)
    """Begin and end, in seconds since the epoch, of times in which something may have been said."""

    def take(self, message: bytes, entries: int = 0, at: float = 0.0) -> None:
        """One hint, heard at this time: a line `id SP status` for each status; see `Final` of
        `entries`. Pure."""
        for line in message.split(b"\n"):
            name, space, value = line.partition(b" ")
            with contextlib.suppress(ValueError):
                status = json.loads(value) if space else {}
                if status.get("state") == "failed" and status.get("code") in WITHOUT_ROW:
                    self.refused[name.decode()] += 1
                if status.get("state") == "in_doubt":
                    self.doubted.setdefault(name.decode(), at)
                if status.get("state") in FINAL:
                    said = Final(status["state"], str(status.get("v")), entries)
                    self._take_final(name.decode(), said)

    def _take_final(self, name: str, said: Final) -> None:
        before = self.final.setdefault(name, said)
        if before.state != said.state:
            self.changed.append((name, before, said))
            self.final[name] = said

    def was_deaf(self, begin: float, end: float) -> bool:
        """Whether something that was said between these times may not have been heard. Pure."""
        return any(began <= end and begin <= ended for began, ended in self.deaf)


class Witness:
    """Listens in a thread of its own, past the gate, until it is told to end."""

    def __init__(
        self, redis_port: int, channel: str, pattern: str, entries: Callable[[], int]
    ) -> None:
        """`pattern`: of the channels that clients have for themselves. `entries`: size of the log
        of entries."""
        self.heard = Heard()
        self._client = redis.Redis(port=redis_port, socket_timeout=5, socket_connect_timeout=1)
        self._channel, self._pattern, self._entries = channel, pattern, entries
        self._over, self._listening = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._listening.wait(30), "no subscription"

    def end(self) -> None:
        self._over.set()
        self._thread.join(10)
        self._client.close()

    def _run(self) -> None:
        last = time.time()
        while not self._over.is_set():
            with contextlib.suppress(redis.RedisError), self._client.pubsub() as pubsub:
                pubsub.subscribe(self._channel)
                pubsub.psubscribe(self._pattern)
                for _ in range(2):
                    pubsub.get_message(timeout=5)  # the confirmations
                self.heard.deaf.append((last, time.time()))
                self._listening.set()
                while not self._over.is_set():
                    last = time.time()
                    said = pubsub.get_message(timeout=WAIT)
                    if said is not None and said["type"] in ("message", "pmessage"):
                        self.heard.take(said["data"], self._entries(), time.time())
            self._over.wait(0.05)
