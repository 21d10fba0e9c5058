"""The stack of a test run: one for all of its processes, started when a test first wants it."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from stack import Stack, find, up
from stack.external import VARIABLES

FOLDER = "ONCEPOOL_TEST_RUN"
"""Names the run's folder. Workers of pytest-xdist inherit it from the process that started them."""

OWNER = "ONCEPOOL_TEST_OWNER"
"""The pid of that process. The stack goes down with it, also when it is killed."""

JAVA = ("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
"""Brokers of tests live too short to pay back what the second compiler costs: without it a start
takes half the CPU."""

PYDANTIC = ("PYDANTIC_DISABLE_PLUGINS", "__all__")
"""Else each process looks for some in the metadata of every package that is installed."""


def begin() -> bool:
    """Makes the run's folder; False where another process of the run has made it."""
    if FOLDER in os.environ:
        return False
    os.environ[FOLDER] = tempfile.mkdtemp(prefix="oncepool-tests-")
    os.environ[OWNER] = str(os.getpid())
    os.environ.setdefault(*JAVA)
    os.environ.setdefault(*PYDANTIC)
    # PostgreSQL does not run as root and has to enter it.
    folder().chmod(0o711)
    return True


def end_at_sigterm() -> None:
    """SIGTERM ends this program as Ctrl-C does: it takes down what it started. Exit code 143.

    For programs that begin a run by themselves; pytest has its own ways.
    """
    signal.signal(signal.SIGTERM, _told_to_end)


def _told_to_end(number: int, _frame: object) -> None:
    signal.signal(number, lambda *_: None)  # once is enough: it is clearing up
    sys.exit(128 + number)


def folder() -> Path:
    """The run's folder."""
    return Path(os.environ[FOLDER])


def stack_of_run() -> Stack:
    """The stack that all tests of this run share."""
    return own_stack("shared")


def own_stack(name: str, **options: object) -> Stack:
    """A stack in a folder of its own, which goes down with the run at the latest."""
    start: Callable[..., Stack] = up
    return start(folder() / name, owner=int(os.environ[OWNER]), disposable=True, **options)


def fetch() -> None:
    """Fetches Kafka's jars and loads its classes, unless that is done or not wanted."""
    if VARIABLES["kafka"] in os.environ or os.environ.get("ONCEPOOL_STACK") == "docker":
        return
    from stack.class_cache import make_class_cache

    make_class_cache(lambda doing: _say(f"tests: {doing}"))


def end() -> None:
    """Takes down what the run started."""
    for data in folder().iterdir():
        stack = find(data, stopped=True)
        if stack is not None:
            stack.down(delete=True)
    shutil.rmtree(folder(), ignore_errors=True)
    del os.environ[FOLDER], os.environ[OWNER]


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
