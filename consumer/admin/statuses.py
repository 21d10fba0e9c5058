"""The store of statuses as commands and the gateway ask it: who asks once does not wait long."""

from __future__ import annotations

from typing import Final

from consumer.config.settings import Settings
from feedback.status.opening import open_store
from feedback.status.store import StatusStore

_TIMEOUT: Final = 2.0
"""Seconds."""


def store_of(settings: Settings) -> StatusStore:
    """The configured one, to be closed by who opened it."""
    return open_store(settings.redis_url, settings.redis_prefix, timeout=_TIMEOUT)
