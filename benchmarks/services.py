"""The services of one benchmark run: the environment's, else a stack that is gone afterwards."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.report import say
from stack import Stack, up


@contextmanager
def services() -> Iterator[Stack]:
    """Kafka with one broker, PostgreSQL and Valkey; also gone when this process is killed."""
    with tempfile.TemporaryDirectory(prefix="oncepool-bench-") as folder:
        # PostgreSQL does not run as root and has to enter it.
        Path(folder).chmod(0o711)
        say("starting the services")
        stack = up(Path(folder) / "stack", owner=os.getpid(), disposable=True)
        try:
            yield stack
        finally:
            stack.down(delete=True)
