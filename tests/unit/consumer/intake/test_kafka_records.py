"""What is read of a message before anybody looks at it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.intake.kafka_records import _type_of
from feedback.contract.headers import MAX_NAME
from feedback.contract.record import Headers


@pytest.mark.parametrize(
    "value, type_",
    [
        (b"payment.create", "payment.create"),
        ("\U0001f4b3".encode() * MAX_NAME, "\U0001f4b3" * MAX_NAME),
        (b"x" * (4 * MAX_NAME + 1), None),
        (b"\xff", None),
    ],
    ids=["a type", "the longest", "a payload", "no text"],
)
def test_a_type_is_what_can_be_one(value: bytes, type_: str | None) -> None:
    """Types are remembered by the pool, of dead letters as well."""
    assert _type_of([("ce_type", value)]) == type_


NAMES = st.sampled_from(["ce_type", "ce_id", "CE_TYPE", "ce_type2"])


@given(st.none() | st.lists(st.tuples(NAMES, st.none() | st.sampled_from([b"a", b"b", b""]))))
def test_the_last_header_of_a_name_counts(headers: Headers | None) -> None:
    """As where they are read into a dict."""
    value = dict(headers or ()).get("ce_type")
    assert _type_of(headers) == (None if value is None else value.decode())
