"""The commit-first protocol on a real broker, with real processes and a fake pool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stack import Stack
from tests.conftest import TopicFactory
from tests.support.storm import Storm, check
from tests.support.waiting import eventually

PROTOCOLS: dict[str, dict[str, Any]] = {
    "range": {
        "kafka_protocol": "classic",
        "kafka_assignor": "range",
        "kafka_session_timeout": 6,
    },
    "cooperative-sticky": {
        "kafka_protocol": "classic",
        "kafka_assignor": "cooperative-sticky",
        "kafka_session_timeout": 6,
    },
    "consumer": {"kafka_protocol": "auto"},
}
NEWER = ("cooperative-sticky", "consumer")
"""Groups with these join, leave and die in tests/system/test_read_again.py, too."""


@pytest.fixture(params=["range", *(pytest.param(p, marks=pytest.mark.long) for p in NEWER)])
def storm(
    request: pytest.FixtureRequest,
    stack: Stack,
    topic: TopicFactory,
    group: str,
    tmp_path: Path,
) -> Iterator[Storm]:
    storm = Storm(stack.kafka, topic(6), group, tmp_path, PROTOCOLS[request.param])
    yield storm
    storm.end()


@pytest.mark.long
def test_joins_leaves_and_kills(storm: Storm) -> None:
    storm.load()
    for _ in range(3):
        storm.start()
    eventually(lambda: storm.delivered() > 0, 90, storm.errors)
    happened = storm.rage(7, seed=1)
    storm.quiet()
    storm.wait_until_committed()
    for member in storm.alive():
        assert storm.stop(member) == 0, storm.errors()
    books = storm.books()
    check(books)
    assert happened["kill"]
    assert happened["leave"]
    assert len(books.dispatched) > 0.5 * storm.produced
