"""Errors of processing.

OncepoolError
├── RegistrationError   a handler, hook or decoder is declared wrongly; nothing has run
├── AppLoadError        `module:attribute` does not lead to an App
├── InvalidPayload      a payload is not what its handler takes (rejected/invalid_payload)
└── InvalidResult       a handler returned what cannot be stored (failed/handler_error)

Interrupted is no error of anybody's, and no Exception: no handler takes it for one.
"""

from __future__ import annotations

from feedback.errors import OncepoolError

__all__ = [
    "AppLoadError",
    "Interrupted",
    "InvalidPayload",
    "InvalidResult",
    "OncepoolError",
    "RegistrationError",
]


class RegistrationError(OncepoolError):
    """A handler, hook or decoder is declared wrongly: says what, where and what to change."""


class AppLoadError(OncepoolError):
    """`module:attribute` does not lead to an App: says which step failed."""


class InvalidPayload(OncepoolError):
    """The payload is not what its handler takes.

    `fingerprint` is the payload's fingerprint (16 bytes), which exists although it is invalid.
    """

    def __init__(self, message: str, fingerprint: bytes) -> None:
        super().__init__(message)
        self.fingerprint = fingerprint


class InvalidResult(OncepoolError):
    """A handler returned what its annotation forbids, or what JSON or the journal cannot hold."""


class Interrupted(BaseException):
    """An `async def` that was waited for was cancelled; `code` is why: `timeout`, `shutdown`."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code
