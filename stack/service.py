"""One service of the stack: a server that can be started, stopped, paused and found again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal

from stack.errors import ServiceFailed
from stack.waiting import POLL, pauses

State = Literal["running", "paused", "stopped"]

Tell = Callable[[str], None]
"""Takes what a service is doing now, for a progress display."""

LOG_LINES = 20


class StackService(ABC):
    """A server that listens on one port of this machine."""

    start_timeout = 90.0
    look_every = POLL
    """Seconds between two looks whether it is ready."""
    kind = "process"
    """What it runs as."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.port = port

    @property
    @abstractmethod
    def address(self) -> str:
        """What clients are given to reach it."""

    @abstractmethod
    def state(self) -> State:
        """What the system says about the server now."""

    @abstractmethod
    def launch(self, tell: Tell) -> bool:
        """Makes the server run, or go on where it is paused; False where it ran already.

        Raises ServiceFailed.
        """

    @abstractmethod
    def ready(self) -> bool:
        """True where the server answers as its clients need it. May raise any error while not."""

    @abstractmethod
    def failed(self, why: str) -> ServiceFailed:
        """The error that says why the server did not come up, with the end of its log."""

    @abstractmethod
    def stop(self, *, kill: bool = False) -> None:
        """Ends the server and all its processes; `kill`: with no chance to tidy up."""

    @abstractmethod
    def pause(self) -> None:
        """Holds the server: connections stay open, nothing answers."""

    @abstractmethod
    def resume(self) -> None:
        """Lets a paused server go on."""

    @abstractmethod
    def clear(self) -> None:
        """Ends what is left of the server, whatever it is doing. Raises StackError."""

    @abstractmethod
    def remove(self) -> None:
        """Removes what the server has stored, once it is stopped."""

    def start(self, tell: Tell = lambda _: None) -> None:
        """Makes the server run and waits for its answer."""
        self.launch(tell)
        self.wait(tell)

    def wait(self, tell: Tell) -> None:
        """Returns when the server answers its clients. Raises ServiceFailed."""
        trouble: Exception | None = None
        for _ in pauses(self.start_timeout, self.look_every):
            if self.state() == "stopped":
                raise self.failed(f"its {self.kind} ended")
            try:
                if self.ready():
                    tell("ready")
                    return
            except Exception as error:  # noqa: BLE001 - each client library has its own errors
                trouble = error
        said = f" ({trouble})" if trouble else ""
        raise self.failed(f"no answer within {self.start_timeout:.0f} s{said}")
