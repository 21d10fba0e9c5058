"""What the gateway tells of itself: whoever wants it hands over an object of these."""

from __future__ import annotations

from typing import Final, Protocol


class GatewayEvents(Protocol):
    """Called in the loop for each answer: must neither wait nor raise."""

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """A call was answered. `route` is as in the OpenAPI document, "" where there is none."""


class EventsTold:
    """Tells several of the same."""

    def __init__(self, *listeners: GatewayEvents) -> None:
        self._listeners = listeners

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """A call was answered."""
        for listener in self._listeners:
            listener.answered(route, method, status, seconds)


SILENT: Final[GatewayEvents] = EventsTold()
