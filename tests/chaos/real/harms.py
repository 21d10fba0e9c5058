"""What befalls a worker process from inside, at a point that the test has named."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Sequence
from typing import Any

from feedback.journal.writer import JournalWriter
from processing.worker.inbox import Inbox
from processing.worker.session import Session
from tests.chaos.real.orders import Obedience

POINTS = ("before_lookup", "in_handler", "before_commit", "after_commit", "before_report")


def do(harm: str) -> None:
    """Does it; most harms do not return."""
    match harm.split():
        case ["kill"]:
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)
        case ["segfault"]:
            ctypes.string_at(0)
        case ["stop"]:
            os.kill(os.getpid(), signal.SIGSTOP)
        case ["eat"]:
            kept = []
            while True:
                kept.append(bytearray(16 * 2**20))
        case ["hold", seconds]:
            # Called with the GIL held: no other thread of this process runs meanwhile.
            ctypes.PyDLL(None).usleep(int(float(seconds) * 1e6))
        case ["hang"]:
            time.sleep(3600)
        case _:
            raise AssertionError(f"no such harm: {harm}")


def arm(obedience: Obedience) -> None:
    """Makes this process take orders at the points between its steps, handlers apart."""

    def point(name: str, about: str = "") -> None:
        if (harm := obedience.take(name, about)) is not None:
            do(harm)

    find, commit, report = JournalWriter.find, Session.commit, Inbox.report

    def find_armed(self: JournalWriter, cursor: Any, ids: Sequence[str]) -> Any:
        point("before_lookup", " ".join(list(ids)[:3]))
        return find(self, cursor, ids)

    def commit_armed(self: Session) -> None:
        point("before_commit")
        commit(self)
        point("after_commit")

    def report_armed(self: Inbox, chunk: Any, outcome: Any) -> None:
        point("before_report")
        report(self, chunk, outcome)

    JournalWriter.find = find_armed  # type: ignore[method-assign]
    Session.commit = commit_armed  # type: ignore[method-assign]
    Inbox.report = report_armed  # type: ignore[method-assign]
