"""A process that has no file descriptor left."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def no_more_descriptors() -> Iterator[None]:
    """None but those that are open already: a pair of sockets is too much."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The limit is one of numbers, and there may be free ones below: they are taken first.
    last = max(int(open_.name) for open_ in Path("/proc/self/fd").iterdir())
    taken = [os.open(os.devnull, os.O_RDONLY)]
    while taken[-1] <= last:
        taken.append(os.open(os.devnull, os.O_RDONLY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[-1], hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)
