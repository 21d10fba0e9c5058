"""Which status store a URL means: a further store is one more line here, and its module.

That serves producers and commands. `oncepool run` keeps limits and the list of instances at the
same URL, and those in Redis alone.

A store's module is loaded when it is opened, so that to check a URL loads no client library.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from feedback.status.store import StatusStore

_REDIS: Final = ("feedback.status.redis_store", "RedisStatusStore")
_STORES: Final = {"redis": _REDIS, "rediss": _REDIS, "unix": _REDIS}
"""Scheme of the URL -> module and class, called with the URL, the prefix and `timeout`."""


def open_store(url: str, prefix: str = "oncepool", *, timeout: float = 0.25) -> StatusStore:
    """The store of a URL; it connects on first use.

    What every key and channel begins with is `prefix`, before a colon. Each step on its connection
    takes at most `timeout` seconds. Raises ValueError for a URL that no store takes.
    """
    module, name = _STORES[check_url(url)]
    store: StatusStore = getattr(import_module(module), name)(url, prefix, timeout=timeout)
    return store


def check_url(url: str) -> str:
    """The scheme of a store's URL. Raises ValueError, which says what there is."""
    scheme, colon, _ = url.partition("://")
    if not colon or scheme not in _STORES:
        known = ", ".join(f"{scheme}://..." for scheme in _STORES)
        raise ValueError(f"this is none of {known}")
    return scheme
