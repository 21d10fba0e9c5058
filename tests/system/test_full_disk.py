"""The whole service while its temporary folder and its log are on a file system without room."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stack import Stack
from tests.chaos.real.small_disk import SmallDisk
from tests.support.commands import Commands
from tests.support.service import WAIT, Bench
from tests.support.waiting import eventually


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path / "small", 1)
    if not disk.mounted:
        pytest.skip("needs the right to mount a file system")
    yield disk
    disk.close()


@pytest.fixture
def bench(
    stack: Stack, topic: Callable[..., str], schema: str, prefix: str, group: str, disk: SmallDisk
) -> Iterator[Bench]:  # fmt: skip
    made = Bench(stack, topic(partitions=2), schema, prefix, group, disk.folder)
    yield made
    made.close()


def test_processes_start_and_requests_run_where_nothing_can_be_written(
    bench: Bench, disk: SmallDisk
) -> None:
    instance = bench.start(TMPDIR=str(disk.folder))
    assert disk.fill() > 0
    limits = Commands(bench.stack, bench.schema, bench.environment["ONCEPOOL_REDIS_PREFIX"])
    assert limits("limits", "set", "--workers", "3").exit_code == 0
    eventually(lambda: len(instance.workers()) == 3, WAIT, lambda: str(instance.process.poll()))
    old = instance.children()
    for pid in old:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: len(new := instance.children()) == 4 and not {*new} & {*old}, WAIT)
    ends = [bench.outcome("effect", {"table": bench.table}).state for _ in range(20)]
    assert ends == ["done"] * 20
    assert bench.query(f"SELECT count(*) FROM {bench.table}") == [(20,)]
    assert [bench.outcome("raises").state for _ in range(20)] == ["failed"] * 20
    assert instance.log.count("Traceback") < 20  # there was no room for their lines
    disk.free()
    assert instance.stop() == 0
    assert "code=0" in instance.log
