"""What the gateway tells of itself, for metrics: whoever wants it hands over an object of these."""

from __future__ import annotations

from typing import Final, Protocol


class GatewayEvents(Protocol):
    """Called in the loop for each answer: must neither wait nor raise."""

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """A call was answered. `route` is as in the OpenAPI document, "" where there is none."""


class _Silent:
    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """Nothing."""


SILENT: Final[GatewayEvents] = _Silent()
