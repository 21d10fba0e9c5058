"""Headers of rows that another version, or somebody by hand, has written."""

from __future__ import annotations

import pytest

from feedback.journal.rows import headers_of, readable_headers


@pytest.mark.parametrize(
    "pair",
    [
        ["x"],
        ["x", "abc"],
        ["x", 5],
        ["x", {}],
        ["x", None, 1],
        5,
        [["x"], None],
        [{}, None],
        [5, None],
    ],
)
def test_headers_that_nobody_can_read_are_none(pair: object) -> None:
    assert readable_headers([["y", "eQ=="], pair]) == []


def test_headers_are_read_as_they_were_sent() -> None:
    assert readable_headers([["y", "eQ=="], ["z", None]]) == [("y", b"y"), ("z", None)]
    assert readable_headers(None) == []


def test_a_name_that_is_no_text_raises_as_another_form_does() -> None:
    with pytest.raises(TypeError, match="name"):
        headers_of('[[["x"], null]]')
