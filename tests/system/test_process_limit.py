"""An instance that may start no process and no thread any more."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from stack import Stack
from tests.chaos.real.process_limit import ProcessLimit, can_limit_processes
from tests.support.storm import Storm
from tests.support.waiting import eventually


@pytest.fixture
def storm(stack: Stack, topic: Callable[..., str], tmp_path: Path) -> Iterator[Storm]:
    name = topic(partitions=4)
    storm = Storm(stack.kafka, name, f"g-{name}", tmp_path, {"grace": 60})
    yield storm
    storm.end()


@pytest.fixture
def limit() -> Iterator[ProcessLimit]:
    limit = ProcessLimit.made(f"oncepool-system-{uuid.uuid4().hex[:8]}")
    assert limit is not None
    yield limit
    limit.close()


def python_threads(pid: int) -> int:
    """Threads of a process but those of its Kafka clients, which have names of their own."""
    tasks = Path(f"/proc/{pid}/task")
    names = []
    for task in tasks.iterdir():
        with suppress(FileNotFoundError):  # it has ended since the folder was read
            names.append((task / "comm").read_text())
    return names.count((tasks / str(pid) / "comm").read_text())


@pytest.mark.skipif(not can_limit_processes(), reason="needs the right to make a control group")
def test_a_rebalance_ends_no_instance_and_the_group_is_left_once_that_can_be(
    storm: Storm, limit: ProcessLimit
) -> None:
    one = storm.start()
    eventually(lambda: "partitions assigned" in storm.errors(), 60, storm.errors)
    # The main thread and the watchdog: the topics are not looked at any more.
    eventually(lambda: python_threads(one.process.pid) == 2, 60)
    limit.bind([one.process.pid])
    other = storm.start()
    eventually(lambda: "whether the topics exist is not looked at yet" in storm.errors(), 60,
               storm.errors)  # fmt: skip
    one.process.send_signal(signal.SIGTERM)
    eventually(lambda: "the group can't be left yet" in storm.errors(), 60, storm.errors)
    limit.close()
    assert one.process.wait(60) == 0, storm.errors()
    assert storm.stop(other) == 0, storm.errors()
