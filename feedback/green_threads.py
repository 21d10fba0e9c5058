"""Programs whose threads are green: one that waits in librdkafka, which is C, stops them all."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

from feedback.errors import ConfigurationError

_PATCHED_BY: Final[tuple[tuple[str, Callable[[object], bool]], ...]] = (
    ("gevent.monkey", lambda module: module.is_module_patched("threading")),  # type: ignore[attr-defined]
    ("eventlet.patcher", lambda module: module.is_monkey_patched("thread")),  # type: ignore[attr-defined]
)


def refuse_green_threads(who: str) -> None:
    """Raises ConfigurationError where `threading` makes green threads: `who` needs real ones."""
    for name, patched in _PATCHED_BY:
        module = sys.modules.get(name)
        if module is not None and patched(module):
            package = name.partition(".")[0]
            raise ConfigurationError(
                f"{package} has patched `threading`: the threads of {who} wait in librdkafka, and"
                " would stop all others. Run it in a process without that (gunicorn: worker class"
                " gthread), send over the HTTP gateway, or add to an outbox whose relay is another"
                " process (`oncepool relay`)"
            )
