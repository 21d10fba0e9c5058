"""A process that has no file descriptor left."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

STANDARD = 3
"""Standard input, output and error, which stay open."""


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
