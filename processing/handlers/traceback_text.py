"""A traceback as text, for whoever reads a request's timeline.

As Python prints it, but for the marks below its lines: to find these it parses the source anew each
time, and failures may come by the thousand. A group of exceptions is printed by Python itself.
"""

from __future__ import annotations

import linecache
import traceback
from types import TracebackType
from typing import Final

from processing.handlers.outcomes import OURS, safe_text
from processing.handlers.tracebacks import Tracebacks

LONGEST: Final = 4000
"""Characters of a traceback."""
_MESSAGE: Final = 500
"""Characters of what one exception says."""
_FRAMES: Final = 20
"""Places of one exception, those nearest to where it was raised."""
_CHAIN: Final = 5
"""Exceptions, the last ones: each was raised for the one before it, or while that was handled."""
_CAUSE: Final = "\n\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT: Final = "\n\nDuring handling of the above exception, another exception occurred:\n\n"


def traceback_text(raised: Tracebacks) -> str:
    """Where it was raised and what led to it, without our own places; bounded, and no NUL in it."""
    with raised.shown():
        try:
            text = _chain(raised.error)
        except BaseException:  # noqa: BLE001 - an exception of the user's own make may do anything
            text = _places(raised.error.__traceback__)
    if len(text) > LONGEST:
        text = f"…{text[1 - LONGEST :]}"
    return safe_text(text, LONGEST)


def _chain(error: BaseException) -> str:
    text = _one(error)
    for _ in range(_CHAIN - 1):
        before, joined = error.__cause__, _CAUSE
        if before is None and not error.__suppress_context__:
            before, joined = error.__context__, _CONTEXT
        if before is None:
            break
        error, text = before, f"{_one(before)}{joined}{text}"
    return text


def _one(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        lines = traceback.format_exception(error, limit=-_FRAMES, chain=False)
        return "\n".join(_short(line.rstrip("\n")) for line in lines)
    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = f"{kind.__module__}.{name}"
    return f"{_places(error.__traceback__)}{name}: {_short(str(error))}".removesuffix(": ")


def _short(said: str) -> str:
    return said if len(said) <= _MESSAGE else f"{said[:_MESSAGE]}…"


def _places(frames: TracebackType | None) -> str:
    """Of its frames those behind our own, which each run goes through first."""
    found = list(traceback.walk_tb(frames))
    ours = 0
    while ours < len(found) - 1 and found[ours][0].f_code.co_filename.startswith(OURS):
        ours += 1
    lines = ["Traceback (most recent call last):\n"] if found else []
    if len(found) - ours > _FRAMES:
        lines.append(f"  … {len(found) - ours - _FRAMES} more\n")
    for frame, line in found[ours:][-_FRAMES:]:
        code = frame.f_code
        lines.append(f'  File "{code.co_filename}", line {line}, in {code.co_name}\n')
        if text := linecache.getline(code.co_filename, line, frame.f_globals).strip():
            lines.append(f"    {text}\n")
    return "".join(lines)
