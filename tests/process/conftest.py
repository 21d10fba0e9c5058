"""What tests of processes share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stack import Stack
from tests.support.workers import Workers


@pytest.fixture
def make(stack: Stack, schema: str, prefix: str) -> Iterator[Callable[..., Workers]]:
    """Makes supervisors with workers: ``make(**settings)``."""
    made: list[Workers] = []

    def start(**settings: Any) -> Workers:
        made.append(Workers(stack, schema, prefix, **settings))
        return made[-1]

    yield start
    for workers in made:
        workers.close()
