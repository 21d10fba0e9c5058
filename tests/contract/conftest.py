"""What contract tests share."""

from __future__ import annotations

import pytest


@pytest.fixture
def schema(pooled_schema: str) -> str:
    """Their requests run in this process."""
    return pooled_schema
