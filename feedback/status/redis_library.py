"""redis-py, loaded without what it loads only to annotate a variable: OpenTelemetry's SDK.

Where that is installed, redis-py imports the whole of it with itself: a third of what it takes. Its
own metrics ask for the SDK again once an application turns them on, so nothing is missed.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["BlockingConnectionPool", "MaintNotificationsConfig", "NoBackoff", "Retry", "redis"]


class _NotHere:
    """Finds a package not to be installed, in the thread that made this one and in no other."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._thread = threading.get_ident()

    def find_spec(
        self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == self._package and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"{name} is not wanted here", name=name)
        return None


@contextlib.contextmanager
def _without(package: str) -> Iterator[None]:
    """What is imported inside does without this package, unless it is loaded already."""
    finder = _NotHere(package)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


with _without("opentelemetry.sdk"):
    import redis
    from redis.backoff import NoBackoff
    from redis.connection import BlockingConnectionPool
    from redis.maint_notifications import MaintNotificationsConfig
    from redis.retry import Retry
