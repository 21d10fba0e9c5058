"""The memory that a worker shares with the main process."""

from __future__ import annotations

import os
import resource

import pytest

from processing.ipc.progress import ProgressSlot


def next_descriptor() -> int:
    descriptor = os.dup(0)
    os.close(descriptor)
    return descriptor


def test_a_slot_that_cannot_be_mapped_leaves_no_descriptor() -> None:
    """Its memory takes the last one, and a map wants one of its own."""
    last = next_descriptor()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (last + 1, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            ProgressSlot.create()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert next_descriptor() == last
