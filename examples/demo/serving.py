"""What the demo leaves running, to be looked at: consumers, relay, gateway with its pages."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack

import orjson

from examples.demo.circle import relay_settings
from examples.demo.instances import Instance
from examples.demo.place import DemoPlace
from examples.demo.program import DemoFailed, Program

CONSUMERS = 2
START = 60.0
TURN = 0.2


class Gateway(Program):
    """`oncepool gateway`, on a free port."""

    @property
    def url(self) -> str:
        """Where it listens; "" as long as it does not say so."""
        for line in self._log.read_bytes().splitlines():
            if b'"gateway listens"' in line:
                return str(orjson.loads(line)["url"])
        return ""


def serve(place: DemoPlace, tell: Callable[[str], None], *, outbox: bool, seconds: float) -> None:
    """Runs them until Ctrl-C, at most for so long. Raises DemoFailed; ends all that it started."""
    with ExitStack() as opened:
        programs: list[Program] = []

        def started(program: Program) -> None:
            opened.callback(program.close)
            programs.append(program)

        environment = place.environment()
        for number in range(1, CONSUMERS + 1):
            started(Instance(f"served consumer {number}", environment, place.folder))
        if outbox:
            relay = {**place.clients(), **relay_settings(place)}
            started(Program("served relay", ["consumer", "relay"], relay, place.folder))
        gateway = Gateway(
            "gateway",
            ["consumer", "gateway"],
            {**environment, "ONCEPOOL_GATEWAY_PORT": "0"},
            place.folder,
        )
        started(gateway)
        tell(f"the dashboard: {_address(gateway)}/ui/ (Ctrl-C ends all)")
        _keep(programs, seconds)
        for program in reversed(programs):
            program.stop()
        for program in programs:
            program.ended()


def _address(gateway: Gateway) -> str:
    end = time.monotonic() + START
    while not (url := gateway.url):
        if time.monotonic() > end:
            raise DemoFailed(f"waited {START:g} s for the gateway to listen")
        gateway.look()
        time.sleep(TURN)
    return url


def _keep(programs: list[Program], seconds: float) -> None:
    """Raises DemoFailed where one ends by itself."""
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            for program in programs:
                program.look()
            time.sleep(TURN)
    except KeyboardInterrupt:
        return
