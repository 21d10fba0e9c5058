"""What a client of librdkafka says while a reader of results is assigned its partitions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime

from feedback.journal.result_outbox import ResultRecord, StoredResult
from processing.maintenance.result_producer import ResultProducer, connect
from stack import Stack

READER = """
import sys
from feedback.client.results import Results

kafka = {"bootstrap.servers": sys.argv[1], "debug": "cgrp,protocol"}
name = sys.argv[2]
with Results(kafka, name, name, from_beginning=True, closed=lambda _: None) as results:
    print(next(results).id)
"""


def test_who_asks_the_library_to_say_more_reads_results(
    stack: Stack, topic: Callable[..., str]
) -> None:
    """A call that serves an assignment has more to hand on: lines for its log, errors, figures."""
    name = topic(partitions=1)
    record = StoredResult(1, datetime.now(UTC), ResultRecord("r-1", "t", "done", "ok", b"1"))
    producer = ResultProducer(name, lambda: connect({"bootstrap.servers": stack.kafka}))
    assert producer.deliver([record]).arrived
    ended = subprocess.run(
        [sys.executable, "-c", READER, stack.kafka, name],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (0, "r-1\n"), ended.stderr[-2000:]
