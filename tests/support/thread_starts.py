"""Threads that the system does not start, or whose start a signal handler ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def refusing(
    name: str, error: BaseException | None = None, *, after: bool = False
) -> Iterator[None]:
    """Meanwhile the start of a thread of that name raises; `after` it has been started."""
    start = threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        if thread.name != name or after:
            start(thread)
        if thread.name == name:
            raise error or RuntimeError("can't start new thread")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        yield
