"""A process that has no file descriptor left."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

STANDARD = 3
"""Standard input, output and error, which stay open."""


def open_descriptors() -> int:
    """How many this process has."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@contextmanager
def no_more_descriptors() -> Iterator[None]:
    """None but those that are open already, and none in place of one that is closed meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The limit is one of numbers: below this one all are taken for good.
    resource.setrlimit(resource.RLIMIT_NOFILE, (STANDARD, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def few_descriptors(left: int) -> Iterator[None]:
    """So many may be opened, and others in place of those that are closed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        first = os.open(os.devnull, os.O_RDONLY)
        stack.callback(os.close, first)
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (first + 64, hard))
        taken = []
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for descriptor in taken[:left]:
            os.close(descriptor)
        for descriptor in taken[left:]:
            stack.callback(os.close, descriptor)
        yield
