"""What was done and how others learn of it: envelope, states, journal, status store, client.

Names are loaded on first use, so that importing one part does not load the others.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from feedback.client.async_client import AsyncClient
    from feedback.client.client import Client
    from feedback.client.result import Result
    from feedback.contract.states import State
    from feedback.errors import (
        ClientClosed,
        ConfigurationError,
        Conflict,
        DeliveryFailed,
        DeliveryPending,
        OncepoolError,
        QueueFull,
        RequestTooLarge,
        ResultMismatch,
        ResultsFailed,
        StoreUnavailable,
        WaitTimeout,
    )
    from feedback.status.status import Status

__all__ = [
    "AsyncClient",
    "Client",
    "ClientClosed",
    "ConfigurationError",
    "Conflict",
    "DeliveryFailed",
    "DeliveryPending",
    "OncepoolError",
    "QueueFull",
    "RequestTooLarge",
    "Result",
    "ResultMismatch",
    "ResultsFailed",
    "State",
    "Status",
    "StoreUnavailable",
    "WaitTimeout",
]

_HOMES = {
    "AsyncClient": "client.async_client",
    "Client": "client.client",
    "Result": "client.result",
    "State": "contract.states",
    "Status": "status.status",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"feedback.{_HOMES.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
