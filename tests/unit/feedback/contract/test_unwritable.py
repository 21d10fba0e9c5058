"""What of a payload cannot be written is named with its place."""

from __future__ import annotations

from typing import Any

import pytest

from feedback.contract.payloads import encode_payload
from tests.support.client import drafted

HALF = "\ud800"
CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)
DEEP: Any = object()
for _ in range(600):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "payload,said",
    [
        ({"a": [{"b": object()}]}, r"payload\['a'\]\[0\]\['b'\] is of type object"),
        ({"a": {1, 2}}, r"payload\['a'\] is of type set"),
        ({"big": 1 << 70, "b": object()}, r"payload\['b'\] is of type object"),
        ({"a": ["x" + HALF]}, r"payload\['a'\]\[0\] holds half of a surrogate pair \(U\+D800 at 1"),
        ({HALF: 1}, "a key of payload holds half of a surrogate pair"),
        ({"a": CIRCLE}, r"payload\['a'\]\[0\] contains itself"),
        (DEEP, "cannot be written as JSON"),
    ],
)
def test_the_place_is_named(payload: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        encode_payload(payload, "application/json")


def test_one_object_in_two_places_is_no_circle() -> None:
    shared = [1 << 70]
    assert (
        encode_payload([shared, shared], "application/json")
        == f"[[{1 << 70}],[{1 << 70}]]".encode()
    )


@pytest.mark.parametrize(
    "options,said",
    [
        ({"request_id": HALF}, "request_id holds half"),
        ({"key": HALF}, "key holds half"),
        ({"reference": HALF}, "reference holds half"),
        ({"headers": {"x": HALF}}, "header 'x' holds half"),
    ],
)
def test_text_that_has_no_utf8_is_named(options: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        drafted("t", 1, **options)
