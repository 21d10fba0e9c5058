"""Plays the demo: the services, the story, the ledger."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, NoReturn

from rich.console import Console

from examples.demo.instances import DemoFailed
from examples.demo.ledger import Ledger
from examples.demo.place import DemoPlace, prepared
from examples.demo.report import show
from examples.demo.screen import Screen
from examples.demo.story import FULL, QUICK, Size, Story

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def play(*, quick: bool, console: Console) -> tuple[bool, dict[str, Any]]:
    """Plays it, and shows it on `console`; whether the books balance, and the ledger as JSON.

    Raises OncepoolError where it could not be played, KeyboardInterrupt where a signal ended it.
    Nothing that it started is left.
    """
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            signal.signal(number, _interrupt)
    with Screen(console) as screen, prepared(screen.event) as place:
        ledger, faults = _story(place, QUICK if quick else FULL, screen)
        seconds = screen.seconds
        kept = "" if ledger.balanced else str(place.keep())
    show(console, ledger, faults)
    if kept:
        console.print(f"the consumers' logs and the card service's record: {kept}", soft_wrap=True)
    return ledger.balanced, {**ledger.as_json(), "faults": faults, "seconds": round(seconds, 1)}


def _story(place: DemoPlace, size: Size, screen: Screen) -> tuple[Ledger, list[str]]:
    try:
        with Story(place, size, screen) as story:
            return story.play(), story.faults
    except DemoFailed as error:
        raise DemoFailed(f"{error}\nthe consumers' logs: {place.keep()}") from error


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # what was started is being ended: one is enough
    raise KeyboardInterrupt
