"""Types that `*` in a text stands for, without a database."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedback.operations.request_reads import matches

TEXTS = st.text("ab*", max_size=7)


@given(type=st.text("ab\n", max_size=8), wanted=TEXTS)
def test_a_star_stands_for_anything(type: str, wanted: str) -> None:
    expression = ".*".join(map(re.escape, wanted.split("*")))
    assert matches(type, wanted) is (re.fullmatch(expression, type, re.DOTALL) is not None)


@pytest.mark.timeout(60)
def test_many_stars_cost_no_more_than_the_text_is_long() -> None:
    """Each star was ten times the work: of these twenty there was no end."""
    assert not matches("a" * 200, "*a" * 20 + "*b")
    assert matches("a" * 200 + "b", "*a" * 20 + "*b")
    assert not matches(None, "*")
