"""Generated messages, most of them malformed, through the whole service."""

from __future__ import annotations

from pathlib import Path

from stack import Stack
from tests.chaos.odd_flood import flood
from tests.chaos.odd_messages import CHANGES


def test_each_generated_message_has_the_end_that_the_contract_gives_it(
    stack: Stack, tmp_path: Path
) -> None:
    made = flood(stack, 40 * len(CHANGES), 20_261_122, tmp_path)
    assert made.told.problems == []
    assert set(made.ledger.changes) == {*CHANGES, ""}
