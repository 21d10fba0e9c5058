"""Which status store a URL means: a further store is one more line here, and its module.

That serves producers and commands. `oncepool run` keeps limits and the list of instances at the
same URL, and those in Redis alone.

A store's module is loaded when it is opened, so that to check a URL loads no client library.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from feedback.status.store import StatusStore

_REDIS: Final = ("feedback.status.redis_store", "RedisStatusStore")
_STORES: Final = {"redis": _REDIS, "rediss": _REDIS, "unix": _REDIS}
"""Scheme of the URL -> module and class, called with the URL, the prefix and `timeout`."""


_TEXTS: Final = frozenset({"username", "password", "client_name"})
_NUMBERS: Final = {
    "db": int,
    "health_check_interval": int,
    "socket_connect_timeout": float,
    "socket_timeout": float,
}
_TLS: Final = "ssl_"
"""What the options of a URL may be, or begin with; any other would change what is read, or is not
known to the client library, which says so only when it connects."""


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
    try:
        parts = urlsplit(url)
        right = parts.port != 0
    except ValueError:
        right = False
    if not right:  # what it found may be a part of a password
        raise ValueError("this is no address: look at host and port (1 to 65535)")
    _check_host(parts.hostname or "")
    if scheme != "unix" and not _names_database(parts):  # the client would take 0 for it
        raise ValueError("its path has to be the number of a database, as in redis://host:6379/0")
    _check_options(parts)
    return scheme


def _names_database(parts: SplitResult) -> bool:
    """Whether the client library reads a number from the path, or takes that of the options."""
    name = unquote(parts.path).strip("/")
    return not name or name.isdecimal() or any(key == "db" for key, _ in parse_qsl(parts.query))


def _check_host(host: str) -> None:
    try:
        host.encode("idna")
    except UnicodeError:
        raise ValueError(f"{host!r} is no name of a host") from None


def _check_options(parts: SplitResult) -> None:
    for name, text in parse_qsl(parts.query, keep_blank_values=True):
        if name in _NUMBERS:
            try:
                _NUMBERS[name](text)
            except ValueError:
                raise ValueError(f"option {name} has to be a number, not {text!r}") from None
        elif name not in _TEXTS and not (name.startswith(_TLS) and parts.scheme == "rediss"):
            known = ", ".join(sorted(_TEXTS | _NUMBERS.keys()))
            raise ValueError(f"there is no option {name}, only {known}; ssl_... with rediss://")
