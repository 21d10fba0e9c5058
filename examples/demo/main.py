"""Plays the demo: the services, the story, the ledger."""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any, NoReturn

from rich.console import Console

from examples.demo.place import DemoPlace, prepared
from examples.demo.program import DemoFailed
from examples.demo.report import DemoBooks, show
from examples.demo.screen import Screen
from examples.demo.serving import serve
from examples.demo.story import FULL, NO_OUTBOX, QUICK, Size, Story

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def play(
    *, quick: bool, outbox: bool, requests: int | None, served: float, console: Console
) -> tuple[bool, dict[str, Any]]:
    """Plays it, and shows it on `console`; whether the books balance, and the ledger as JSON.

    Without `outbox` the storefront sends its requests before it commits its orders, and that is
    all. `requests`: of the group's other producer; None: as many as it has. `served`: seconds for
    which consumers and pages run on afterwards, unless a signal comes.

    Raises OncepoolError where it could not be played, KeyboardInterrupt where a signal ended it.
    Nothing that it started is left.
    """
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            signal.signal(number, _interrupt)
    with ExitStack() as opened:
        with Screen(console) as screen:
            place = opened.enter_context(prepared(screen.event))
            books = _story(place, _size(requests, quick=quick, outbox=outbox), screen)
            seconds = screen.seconds
        balanced = books.messages.balanced and books.orders.balanced
        kept = "" if balanced or not outbox else str(place.keep())
        show(console, books)
        if kept:
            where = f"the programs' logs and the card service's record: {kept}"
            console.print(where, soft_wrap=True)
        if served:
            tell = partial(console.print, soft_wrap=True)
            serve(place, tell, outbox=outbox, seconds=served)
    return balanced, {
        **books.messages.as_json(),
        "balanced": balanced,
        "orders": books.orders.as_json(),
        "faults": books.faults,
        "seconds": round(seconds, 1),
    }


def _size(requests: int | None, *, quick: bool, outbox: bool) -> Size:
    if not outbox:
        return NO_OUTBOX
    size = QUICK if quick else FULL
    return size if requests is None else replace(size, requests=requests)


def _story(place: DemoPlace, size: Size, screen: Screen) -> DemoBooks:
    try:
        with Story(place, size, screen) as story:
            messages, orders = story.play()
            return DemoBooks(messages, orders, story.faults, outbox=size.outbox)
    except DemoFailed as error:
        raise DemoFailed(f"{error}\nthe programs' logs: {place.keep()}") from error


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # what was started is being ended: one is enough
    raise KeyboardInterrupt
