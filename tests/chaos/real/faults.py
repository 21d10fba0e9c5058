"""What a fault is, and how one lane of them is run."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

from tests.chaos.real.clock import JumpingClock
from tests.chaos.real.gateway_side import GatewaySide
from tests.chaos.real.members import Members
from tests.chaos.real.orders import Orders
from tests.chaos.real.outbox_side import OutboxSide
from tests.chaos.real.place import Place
from tests.chaos.real.producer import ChaosProducer
from tests.chaos.real.schedule import Planned
from tests.support.proxy import Proxy


class Lane(StrEnum):
    """Faults of one lane strike one after the other, those of different lanes beside each other."""

    PROCESS = "process"
    SERVICE = "service"


@dataclass
class Scene:
    """What faults strike: one episode."""

    place: Place
    members: Members
    orders: Orders
    clock: JumpingClock
    entries: Path
    """Where handlers note that they were entered, and when."""
    name: str
    """Topic, schema, prefix and group."""
    partitions: int
    protocol: str
    pending: Callable[[], int]
    """How many requests have no answer now."""
    producer: ChaosProducer
    outbox: OutboxSide | None = None
    gateway: GatewaySide | None = None


Strike = Callable[[Scene, random.Random], str]
"""Does harm, undoes what has to be undone, and says what was seen of it; "" where nothing was.

Raises AssertionError where what it saw must not be, which is a problem of the run; whatever else it
raises says that it could not strike.
"""


@dataclass(frozen=True)
class Fault:
    """One kind of fault."""

    kind: str
    lane: Lane
    strike: Strike
    weight: float = 1.0
    """How often it strikes, against others; 0: only where it is asked for by its name."""
    needs: Callable[[Place], bool] = lambda _: True
    of_orders: bool = False
    """Whether it strikes what is there only where orders go through an outbox."""
    of_gateway: bool = False
    """Whether it strikes what is there only where requests go through a gateway."""

    def fits(self, scene: Scene) -> bool:
        """Whether there is what it strikes."""
        return (
            self.needs(scene.place)
            and (scene.outbox is not None or not self.of_orders)
            and (scene.gateway is not None or not self.of_gateway)
        )


@dataclass
class Struck:
    """One fault that struck. Times are seconds since the epoch."""

    kind: str
    began: float
    ended: float
    evidence: str
    """Empty: it had no effect that was seen, and does not count."""


FAULTS: dict[str, Fault] = {}


def fault(
    lane: Lane,
    weight: float = 1.0,
    needs: Callable[[Place], bool] = lambda _: True,
    *,
    of_orders: bool = False,
    of_gateway: bool = False,
) -> Callable[[Strike], Strike]:
    """Registers a function as a kind of fault, under its name."""

    def register(strike: Strike) -> Strike:
        kind = getattr(strike, "__name__", "")
        FAULTS[kind] = Fault(kind, lane, strike, weight, needs, of_orders, of_gateway)
        return strike

    return register


def paused_for(scene: Scene, role: Literal["database", "redis"], seconds: float) -> str:
    """Pauses a service's processes for a while."""
    stack = scene.place.stack
    pause, resume = {
        "database": (stack.pause_database, stack.resume_database),
        "redis": (stack.pause_redis, stack.resume_redis),
    }[role]
    pause()
    state = next(s.state for s in stack.status() if s.role == role)
    time.sleep(seconds)
    resume()
    return "held" if state == "paused" else ""


def cut_once(gates: Sequence[Proxy]) -> str:
    """Breaks every connection through these gates; new ones are welcome."""
    cut = sum(gate.cut_connections() for gate in gates)
    return f"{cut} connections" if cut else ""


def cut_for(gates: Sequence[Proxy], seconds: float) -> str:
    """Breaks every connection through these gates, and refuses new ones for a while."""
    cut = sum(gate.cut() for gate in gates)
    time.sleep(seconds)
    for gate in gates:
        gate.mend()
    return f"{cut} connections" if cut else ""


def silent_for(gates: Sequence[Proxy], seconds: float) -> str:
    """Makes black holes of these gates for a while: what is sent is taken, and nothing passes."""
    for gate in gates:
        gate.hang()
    time.sleep(0.3)  # what was on its way
    before = sum(gate.passed for gate in gates)
    time.sleep(seconds)
    held = sum(gate.passed for gate in gates) == before
    for gate in gates:
        gate.mend()
    connections = sum(gate.connections for gate in gates)
    return f"{connections} connections" if held and connections else ""


class LaneRunner:
    """Lets the faults of one lane strike, in a thread of its own, until it is told to end."""

    def __init__(self, scene: Scene, planned: Iterator[Planned]) -> None:
        self.struck: list[Struck] = []
        self._scene, self._planned = scene, planned
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """No fault begins any more."""
        self._over.set()

    def join(self, timeout: float) -> bool:
        """Whether it came to its end in time."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        for plan in self._planned:
            if self._over.wait(plan.after):
                return
            began = time.time()
            try:
                evidence = FAULTS[plan.kind].strike(self._scene, random.Random(plan.seed))
            except AssertionError as error:
                # It struck, and what it saw then must not be.
                evidence = f"wrong: {error}"
                self._scene.members.wrong.append(f"{plan.kind}: {error}")
            except Exception as error:  # noqa: BLE001 - a fault that failed has no effect
                evidence = ""
                self.struck.append(
                    Struck(f"{plan.kind} (error: {error!r:.150})", began, time.time(), "")
                )
                continue
            self.struck.append(Struck(plan.kind, began, time.time(), evidence))
