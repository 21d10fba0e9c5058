"""How a program that lasts says on standard error what it has to say, before its log and beside it.

People read sentences. Where the log was asked to be JSON, whatever reads it gets one object a line
from the start on: an error that keeps the program from beginning is a line of the log then.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Final, Literal

import typer

Level = Literal["info", "warning", "error"]


class _Voice:
    def __init__(self) -> None:
        self.as_log = False


_VOICE: Final = _Voice()


def speak(message: str, level: Level) -> None:
    """Says it to people, or to whatever reads the log."""
    if _VOICE.as_log:
        from processing.logs import get_logger  # commands that only print do without it

        getattr(get_logger("oncepool.command"), level)(message)
    else:
        kind = "warning: " if level == "warning" else ""
        typer.echo(f"oncepool: {kind}{message}", err=True)


def speak_as(log_format: object) -> None:
    """From now on as a program with this setting does, whatever else it may be."""
    _VOICE.as_log = log_format == "json"
    if _VOICE.as_log:
        from processing.logs import configure

        configure("json")
        sys.excepthook = _log_last_words


def _log_last_words(
    kind: type[BaseException], error: BaseException, frames: TracebackType | None
) -> None:
    from processing.logs import get_logger

    get_logger("oncepool.command").critical("unexpected", exc_info=(kind, error, frames))
