from __future__ import annotations

import dataclasses
import enum
import json
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import orjson
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedback.contract.payloads import NoMemoryToParse, encode_payload, parse_json, unstorable

JSON = "application/json"

AT = datetime(2030, 5, 1, tzinfo=UTC)


class Inner(pydantic.BaseModel):
    amount: int = pydantic.Field(alias="Amount")


class Colour(enum.StrEnum):
    RED = "red"


@dataclasses.dataclass
class Order:
    id: uuid.UUID
    at: datetime
    inner: Any
    colour: Colour = Colour.RED


ORDER = Order(uuid.UUID(int=1), AT, Inner(Amount=5))

ORDER_JSON = (
    b'{"id":"00000000-0000-0000-0000-000000000001","at":"2030-05-01T00:00:00+00:00",'
    b'"inner":{"Amount":5},"colour":"red"}'
)


@pytest.mark.parametrize(
    "payload, expected",
    [
        ({"b": 1, "a": [True, None]}, b'{"b":1,"a":[true,null]}'),
        ([], b"[]"),
        ("text", b'"text"'),
        (None, b"null"),
        (7, b"7"),
        (b"\xff", b"\xff"),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"ab"), b"ab"),
        (Inner(Amount=2**70), b'{"Amount":1180591620717411303424}'),
        ({"d": Decimal("1.10")}, b'{"d":"1.10"}'),
        ({"n": 2**64, 3: Decimal("1.1")}, b'{"n":18446744073709551616,"3":"1.1"}'),
        (ORDER, ORDER_JSON),
        ([2**64, ORDER], b"[18446744073709551616," + ORDER_JSON + b"]"),
    ],
)  # fmt: skip
def test_payloads_as_json(payload: Any, expected: bytes) -> None:
    assert encode_payload(payload, JSON) == expected


class Price(pydantic.BaseModel):
    value: float


@dataclasses.dataclass
class Quote:
    price: float


@pytest.mark.parametrize(
    "payload",
    [
        float("nan"),
        {"a": [float("inf")]},
        {"n": 2**70, "a": float("nan")},
        Price(value=float("nan")),
        {"q": (Quote(float("nan")),)},
        {1, 2},
        {"a": object()},
        [2**70, object()],
        {"a": b"bytes"},
        "\ud800",
    ],
)
def test_what_json_has_no_form_for_is_refused_not_changed(payload: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        encode_payload(payload, JSON)


def test_a_list_in_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError):
        encode_payload(endless, JSON)


def test_other_content_types_take_text_and_bytes() -> None:
    assert encode_payload("ä", "text/plain") == "ä".encode()
    assert encode_payload(b"\x00", "image/png") == b"\x00"
    with pytest.raises(ValueError, match="cannot be sent as 'text/plain'"):
        encode_payload({}, "text/plain")


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.just("k"), inner),
    max_leaves=8,
)


@given(values)
def test_any_json_value_arrives_as_it_is(value: Any) -> None:
    assert json.loads(encode_payload(value, JSON)) == value


def test_text_that_looks_like_numbers_is_no_longer_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode_payload([1e-7] * 1000 + ["1e300, " * 1000, '\\"1e300'], JSON)
    monkeypatch.setattr("feedback.contract.payloads.LARGEST_RESULT", len(data) + 9000)
    assert unstorable(data) is None
    assert unstorable(data[:-1] + b",1e-300" * 6 + b"]") is not None


def test_json_that_there_is_no_memory_for_is_not_wrong() -> None:
    """Of a worker that really has none, see system/test_short_of_memory.py."""
    error = orjson.JSONDecodeError("Not enough memory to allocate buffer for parsing", "", 0)
    with patch("orjson.loads", side_effect=error), pytest.raises(NoMemoryToParse):
        parse_json(b"{}")
