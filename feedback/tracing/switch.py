"""Whether this process traces. OpenTelemetry is loaded only where it does, when that is asked."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Final

from feedback.after_fork import after_fork
from feedback.errors import ConfigurationError

if TYPE_CHECKING:
    from feedback.tracing.spans import Spans

VARIABLE: Final = "ONCEPOOL_TRACING"
_ON: Final = frozenset({"1", "on", "t", "true", "y", "yes"})
_OFF: Final = frozenset({"", "0", "off", "f", "false", "n", "no"})


class TracingSwitch:
    """As the environment says, until `turn` says something else."""

    def __init__(self, *, on: bool | None = None) -> None:
        self._on = on
        self._spans: Spans | None = None  # made under the lock
        self._lock = threading.Lock()  # another one in a process that is forked

    def turn(self, *, on: bool) -> None:
        """What the settings say, which may come from a file. Before anything is traced."""
        self._on = on

    def spans(self) -> Spans | None:
        """Those of this process; None where it does not trace. Raises ConfigurationError."""
        if self._on is None:
            self._on = _said(os.environ.get(VARIABLE, ""))
        if not self._on:
            return None
        with self._lock:
            if self._spans is None:
                self._spans = _loaded()
            return self._spans

    def context(self) -> list[tuple[str, bytes]]:
        """The trace context of what runs here, as headers; empty where there is none."""
        spans = self.spans()
        return [] if spans is None else spans.context()

    def forked(self) -> None:
        """In a forked process: a thread that was not copied may have held it."""
        self._lock = threading.Lock()

    def flush(self, seconds: float) -> None:
        """At the end of the process: hands on what has ended, within so many seconds."""
        if self._spans is not None:
            self._spans.flush(seconds)


def _said(text: str) -> bool:
    """As the settings of a program take it."""
    plain = text.strip().lower()
    if plain not in _ON | _OFF:
        raise ConfigurationError(f"{VARIABLE} is {text!r}: it has to be on or off")
    return plain in _ON


def _loaded() -> Spans:
    try:
        from feedback.tracing.spans import Spans
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{VARIABLE} is on, and {error.name} is missing: pip install 'oncepool[tracing]'"
        ) from None
    return Spans()


TRACING: Final = TracingSwitch()
"""That of this process."""
after_fork(TRACING.forked)
