"""What has to be done anew in a process that is forked."""

from __future__ import annotations

import os
from collections.abc import Callable


def after_fork(renew: Callable[[], object]) -> None:
    """Has it called in each process that is forked off, where no other thread runs.

    Locks above all: who held one at the fork is not there to give it back.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=renew)
