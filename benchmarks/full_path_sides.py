"""One measured run of each design, for benchmarks/full_path.py, with what CPU it took."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import closing

from benchmarks.contenders import Contender
from benchmarks.cpu import per_request, used
from benchmarks.full_path_runs import (
    WARM_UP,
    RunNames,
    fill_topic,
    instance,
    rate,
    running,
)
from benchmarks.measured import Measured
from benchmarks.watch import ProgressWatch, RowsWatch

_BARE = Contender("bare limit", ("benchmarks.bare_limit", "HANDLER", "COUNT", "WARM"), reads=False)


def oncepool(where: RunNames, handler: str, count: int) -> Measured:
    """One instance that finds `count` requests in its topic."""
    fill_topic(where, handler, count)
    with instance(where) as process:
        return measured(where, "requests", count, RowsWatch(where, "requests"), process)


def plain(commits: str) -> Callable[[RunNames, str, int], Measured]:
    """The plain design, with a commit for each `poll` or each `message`."""

    def run(where: RunNames, handler: str, count: int) -> Measured:
        fill_topic(where, handler, count)
        command = [sys.executable, "-m", "benchmarks.plain_design", str(count), commits]
        with running([*command, str(where.workers)], where.environment) as process:
            return measured(where, "plain", count, RowsWatch(where, "plain"), process)

    return run


def bare(where: RunNames, handler: str, count: int) -> Measured:
    """The statements and commands alone, in as many processes as there are workers."""
    return _BARE.run(where, handler, count)


def measured(
    where: RunNames, table: str, count: int, watch: ProgressWatch,
    *processes: subprocess.Popen[bytes],
) -> Measured:  # fmt: skip
    """Rate and CPU of what is done after the warm-up, of rows in a table, until `count` are."""
    roots = [process.pid for process in processes]
    with closing(watch):
        first = watch.until(int(count * WARM_UP), processes)
        begun = used(roots, where.stack.data, watch.own)
        done = watch.until(count, processes)
        ended = used(roots, where.stack.data, watch.own)
    return Measured(rate(where, table, count), per_request(begun, ended, done - first))
