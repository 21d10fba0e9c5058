"""What a program hears of Kafka in an outage."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from feedback.client.kafka_log import OutageLog

PROGRAM = """
from feedback import Client
from feedback.errors import DeliveryPending
from feedback.status.memory_store import MemoryStatusStore

# Nobody listens there, and this program has not set up any logging.
client = Client(kafka="127.0.0.1:1,127.0.0.1:2", redis=MemoryStatusStore(), topic="t")
for number in range(10):
    client.submit("a.b", {})
try:
    client.flush(4)
except DeliveryPending:
    print("pending")
import os
os._exit(0)
"""


def test_an_outage_is_a_line_on_standard_error() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout == "pending\n"
    (line,) = done.stderr.splitlines()
    assert "Connection refused" in line


def test_the_next_outage_is_told_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    outages = OutageLog()

    def fail() -> None:
        outages.log(logging.ERROR, "%s [%s] %s", "FAIL", "client", "refused")

    fail()
    fail()
    outages.log(logging.WARNING, "%s [%s] %s", "GETPID", "client", "retrying")
    outages.log(logging.WARNING, "%s [%s] %s", "METADATAUPDATE", "client", "new leader-1 not found")
    outages.over()
    outages.over()
    outages.log(logging.WARNING, "%s [%s] %s", "METADATAUPDATE", "client", "new leader-1 not found")
    fail()

    told = [record.levelname for record in caplog.records]
    assert told == ["ERROR", "INFO", "ERROR"]


def test_a_fatal_error_is_always_told(caplog: pytest.LogCaptureFixture) -> None:
    outages = OutageLog()
    for _ in range(2):
        outages.log(logging.CRITICAL, "%s [%s] %s", "FATAL", "client", "fenced")

    assert len(caplog.records) == 2
