"""What tests of the journal share."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from stack import Stack


@pytest.fixture
def other(stack: Stack) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A second connection."""
    with psycopg.connect(stack.database, autocommit=True) as connection:
        yield connection
