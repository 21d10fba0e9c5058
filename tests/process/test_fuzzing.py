"""A coverage-guided fuzzer reads messages, and finds a bug that no generated one shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.chaos.odd_fuzz import SEEDS, Fuzzed, NotInstalled, fuzz
from tests.chaos.odd_reading import decoded

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

LONGEST = 120.0


def fuzzed(seconds: float, folder: Path, extra: Sequence[str] = ()) -> Fuzzed:
    try:
        return fuzz(seconds, 7, folder, extra)
    except NotInstalled as error:
        pytest.skip(f"atheris cannot be had: {error}")


def test_what_a_fuzzer_makes_is_read_as_it_has_to_be(tmp_path: Path) -> None:
    made = fuzzed(10, tmp_path)
    assert made.wrong == []
    assert made.runs > SEEDS
    assert made.new > 0
    assert made.covered[1] > 100


def test_a_planted_bug_is_found(tmp_path: Path) -> None:
    made = fuzzed(LONGEST, tmp_path, ["--planted"])
    assert made.found is not None
    assert "was read as None" in made.wrong[0]
    assert len(decoded(made.found)[4] or b"") > 60
