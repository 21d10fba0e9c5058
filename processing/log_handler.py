"""Writes log lines without waiting for long for whoever reads them.

A reader that has stopped, as a collector on a full disk or a terminal that is held, must not stop
the process that logs. Lines that it does not take are left out and counted.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import select
import socket
import stat
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TextIO

PATIENCE = 0.25
"""Seconds that a line may wait for a reader."""
REST = 20.0
"""Times as long as a wait took no line waits again."""

Write = Callable[[memoryview], int]
"""Takes as much as there is room for; returns how much. Raises BlockingIOError where none is."""


def handler_for(stream: TextIO) -> logging.Handler:
    """The handler for a stream: an `UnblockedHandler` where its reader could hold it up."""
    try:
        descriptor = stream.fileno()
        write = _unblocked(descriptor)
    except (OSError, ValueError):  # no descriptor behind it, or one that must not be opened again
        write = None
    if write is None:
        return WaitingHandler(stream)
    return UnblockedHandler(descriptor, write, stream.encoding or "utf-8")


class _Legible(logging.Handler):
    """Has a line for each record, also where its arguments do not go with its message."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's line; one that says what is wrong with it where it can't be made."""
        try:
            return super().format(record)
        except Exception as error:  # noqa: BLE001 - of whatever a caller has passed
            return super().format(_as_it_stands(record, error))


def _as_it_stands(record: logging.LogRecord, error: Exception) -> logging.LogRecord:
    """The record with its message as a text without arguments, and texts for what has none."""
    more = {
        "arguments": _shown(record.args),
        "not_formatted": _shown(error),
        "at": f"{record.pathname}:{record.lineno}",
    }
    stands = copy.copy(record)
    vars(stands).update(_legible(vars(record)))
    stands.args = ()
    if isinstance(record.msg, dict):  # structlog's: the message is one of its fields
        stands.msg = _legible(record.msg) | more
    else:
        stands.msg = record.msg if isinstance(record.msg, str) else _shown(record.msg)
        vars(stands).update(more)
    return stands


def _legible(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields, each that can't be shown as a text; tracebacks come without that."""
    return {
        name: value if name == "exc_info" or _repr_of(value) is not None else _shown(value)
        for name, value in fields.items()
    }


def _shown(value: object, *, parts: bool = True) -> str:
    """As repr, and where that fails each part of it by itself."""
    if (whole := _repr_of(value)) is not None:
        return whole
    part = partial(_shown, parts=False)
    if parts and isinstance(value, dict):
        return f"{{{', '.join(f'{part(k)}: {part(v)}' for k, v in value.items())}}}"
    if parts and isinstance(value, (tuple, list)):
        return f"[{', '.join(map(part, value))}]"
    return object.__repr__(value)


def _repr_of(value: object) -> str | None:
    """None where it can't be made."""
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - of whatever a caller has passed
        return None


class WaitingHandler(_Legible, logging.StreamHandler[TextIO]):
    """Lines to a file."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Says it on standard error, unless that is what a handler has closed."""
        with contextlib.suppress(ValueError):
            super().handleError(record)


class UnblockedHandler(_Legible):
    """Lines to a pipe, a terminal or a socket."""

    def __init__(self, descriptor: int, write: Write, encoding: str = "utf-8") -> None:
        super().__init__()
        self._write = write
        self._encoding = encoding
        self._room = select.poll()
        self._room.register(descriptor, select.POLLOUT)
        self._left_out = 0
        self._torn = False
        """The last line was taken in part."""
        self._next_wait = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a record's line; before it, how many were left out."""
        try:
            if self._left_out and self._put(self._note()):
                self._left_out = 0
            if self._left_out or not self._put(record):
                self._left_out += 1
        except OSError:  # nobody is there to read
            self._left_out += 1
        except Exception:  # noqa: BLE001 - as every handler does: logging never raises
            self.handleError(record)

    def _note(self) -> logging.LogRecord:
        text = "log lines left out: nobody read them"
        log = logging.getLogger("oncepool.logs")
        more = {"left_out": self._left_out}
        return log.makeRecord(log.name, logging.WARNING, "", 0, text, (), None, extra=more)

    def _put(self, record: logging.LogRecord) -> bool:
        """Whether the whole line was taken."""
        line = f"{self.format(record)}\n".encode(self._encoding, "backslashreplace")
        left = memoryview(b"\n" + line if self._torn else line)
        whole = len(left)
        while left:
            try:
                left = left[self._write(left) :]
            except BlockingIOError:
                if not self._wait():
                    self._torn |= len(left) < whole
                    return False
        self._torn = False
        return True

    def _wait(self) -> bool:
        """Waits for room, unless it has done so lately; whether there is some."""
        begun = time.monotonic()
        if begun < self._next_wait:
            return False
        ready = bool(self._room.poll(PATIENCE * 1000))
        ended = time.monotonic()
        self._next_wait = ended + REST * (ended - begun)
        return ready


def _unblocked(descriptor: int) -> Write | None:
    """A write that does not wait; None where none would. Raises OSError.

    Whether a write waits is said of what was opened, which other processes share: so it is opened
    once more.
    """
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return None
    if stat.S_ISSOCK(mode):
        shared = socket.socket(fileno=os.dup(descriptor))
        return lambda data: shared.send(data, socket.MSG_DONTWAIT)
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    own = os.open(f"/proc/self/fd/{descriptor}", flags)
    return lambda data: os.write(own, data)
