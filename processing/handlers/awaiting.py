"""How `async def` code of the app is waited for by code that is none.

Nothing here loads asyncio before there is something to wait for: few apps need it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

Call = Callable[[Any, Any, Any], Any]


def waiting_for(call: Call) -> Call:
    """The call plan of an `async def` for who cannot await it."""
    from processing.handlers.event_loop import LOOP

    def wait(first: Any, request: Any, tx: Any) -> Any:
        return LOOP.run(call(first, request, tx))

    return wait


def waiting_at_most(call: Call, until: float) -> Call:
    """The same, cancelled at `until` of the monotonic clock."""
    from processing.handlers.event_loop import LOOP

    def wait(first: Any, request: Any, tx: Any) -> Any:
        return LOOP.run(call(first, request, tx), max(0.0, until - time.monotonic()))

    return wait


def with_threads(call: Call) -> Call:
    """The call plan of an `async def` handler: it ends when the threads of its call have, too.

    They are noted in the CallThreads that is given in place of a transaction, where one is.
    """
    from processing.handlers.call_threads import CallThreads

    async def wait(first: Any, request: Any, given: Any) -> Any:
        threads = given or CallThreads()
        if request is not None:
            request.threads = threads
        return await threads.outlive(call(first, request, None))

    return wait


def waiting_until_deadline(call: Call) -> Call:
    """The same, of one whose first argument is a request: it is cancelled at that's deadline."""
    from processing.handlers.event_loop import LOOP

    def wait(first: Any, request: Any, tx: Any) -> Any:
        left = None
        if first.deadline is not None:
            left = max(0.0, (first.deadline - datetime.now(UTC)).total_seconds())
        return LOOP.run(call(first, request, tx), left)

    return wait


def interrupt_waiting(code: str) -> None:
    """Cancels the `async def` that this process waits for, if any; for signal handlers."""
    if module := sys.modules.get("processing.handlers.event_loop"):
        module.LOOP.interrupt(code)
