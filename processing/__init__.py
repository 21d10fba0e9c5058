"""Oncepool's side of handlers: declare them with App, end them with a result, Reject or Retry."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from processing.app import App
    from processing.decoder import Message, RawMessage, Skip
    from processing.errors import (
        AppLoadError,
        InvalidPayload,
        InvalidResult,
        RegistrationError,
    )
    from processing.outcomes import Done, NotDone, Reject, Retry, Unknown
    from processing.request import Request
    from processing.retry import RetryPolicy

_PLACES = {
    "App": "app",
    "AppLoadError": "errors",
    "Done": "outcomes",
    "InvalidPayload": "errors",
    "InvalidResult": "errors",
    "Message": "decoder",
    "NotDone": "outcomes",
    "RawMessage": "decoder",
    "RegistrationError": "errors",
    "Reject": "outcomes",
    "Request": "request",
    "Retry": "outcomes",
    "RetryPolicy": "retry",
    "Skip": "decoder",
    "Unknown": "outcomes",
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
