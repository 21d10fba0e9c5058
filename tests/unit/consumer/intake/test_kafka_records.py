"""What is read of a message before anybody looks at it."""

from __future__ import annotations

import pytest

from consumer.intake.kafka_records import _type_of
from feedback.contract.headers import MAX_NAME


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
