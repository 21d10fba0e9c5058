"""Oncepool's side of handlers: declare them with App, end them with a result, Reject or Retry."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from processing.handlers.app import App
    from processing.handlers.decoder import Message, RawMessage, Skip
    from processing.handlers.errors import (
        AppLoadError,
        InvalidPayload,
        InvalidResult,
        RegistrationError,
    )
    from processing.handlers.outcomes import Done, NotDone, Reject, Retry, Unknown
    from processing.handlers.periodic import Tick
    from processing.handlers.request import Request
    from processing.handlers.retry_policy import RetryPolicy

_PLACES = {
    "App": "handlers.app",
    "AppLoadError": "handlers.errors",
    "Done": "handlers.outcomes",
    "InvalidPayload": "handlers.errors",
    "InvalidResult": "handlers.errors",
    "Message": "handlers.decoder",
    "NotDone": "handlers.outcomes",
    "RawMessage": "handlers.decoder",
    "RegistrationError": "handlers.errors",
    "Reject": "handlers.outcomes",
    "Request": "handlers.request",
    "Retry": "handlers.outcomes",
    "RetryPolicy": "handlers.retry_policy",
    "Skip": "handlers.decoder",
    "Tick": "handlers.periodic",
    "Unknown": "handlers.outcomes",
}

__all__ = [
    "App",
    "AppLoadError",
    "Done",
    "InvalidPayload",
    "InvalidResult",
    "Message",
    "NotDone",
    "RawMessage",
    "RegistrationError",
    "Reject",
    "Request",
    "Retry",
    "RetryPolicy",
    "Skip",
    "Tick",
    "Unknown",
]


def __getattr__(name: str) -> Any:
    # Loaded on first use, so that the main process, which runs no handler, imports none of it.
    if name not in _PLACES:
        raise AttributeError(f"module 'processing' has no attribute {name!r}")
    value = getattr(import_module(f"processing.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
