"""What the tests of operators' actions share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.dead_letters import writer_of_letters
from tests.support.journal import Journal


@pytest.fixture
def letter(journal: Journal) -> Callable[..., int]:
    """Writes a dead letter: its headers as a dict, its number comes back."""
    return writer_of_letters(journal)
