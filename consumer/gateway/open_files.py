"""How many connections the limit of open files has room for."""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import Final

from processing.logs import get_logger

EXTRA: Final = 256
"""Connections beyond the bound that are open at once, to be told that they are too many."""
OTHERS: Final = 128
"""Files that are no connections of clients: those to brokers, Redis and databases, and what is
taken from the listener and not counted yet."""

log = get_logger("oncepool.gateway")


def connections_that_fit(wanted: int) -> int:
    """So many, or fewer where the system allows less; raises the process's soft limit for them."""
    needed = wanted + EXTRA + OTHERS
    allowed = _raised_to(needed)
    if allowed >= needed:
        return wanted
    fit = max(1, allowed - EXTRA - OTHERS)
    log.warning(
        "fewer connections than gateway_max_connections: too few open files are allowed; raise the"
        " hard limit (LimitNOFILE= of a systemd service, --ulimit nofile= of a container), or lower"
        " gateway_max_connections",
        connections=fit, gateway_max_connections=wanted, limit=allowed, needed=needed,
    )  # fmt: skip
    return fit


def _raised_to(needed: int) -> int:
    """The soft limit of open files, raised to this where the hard one lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return needed
    reached = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    with suppress(OSError, ValueError):  # a system that has another bound besides
        resource.setrlimit(resource.RLIMIT_NOFILE, (reached, hard))
        return reached
    return soft
