"""A worker that dies with statuses in its queue for Redis."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from stack import Stack
from tests.support.proxy import Proxy
from tests.support.workers import Workers

Make = Callable[..., Workers]


def test_a_status_that_waits_for_redis_goes_with_its_worker_and_a_resend_brings_it(
    make: Make, stack: Stack
) -> None:
    with Proxy.of(stack.redis) as proxy:
        workers = make(redis_url=proxy.before(stack.redis))
        workers.start()
        workers.warm()
        proxy.cut()  # not hang(): what it holds would come through later
        workers.submit("id")
        workers.finish()  # reported: nobody has it in hand any more
        [victim] = workers.pids
        os.kill(victim, signal.SIGKILL)
        workers.until(lambda: workers.ready and victim not in workers.pids)
        proxy.mend()
        workers.warm()
        assert workers.states() == {"id": ("done", "ok")}
        assert workers.status("id") is None
        workers.submit("id")
        workers.until(lambda: workers.status("id") == ("done", "ok"))
        workers.check_effects()
