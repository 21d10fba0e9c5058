"""Whether a message asks for what stands under its id, without the code of its type."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from feedback.contract.fingerprint import fingerprint
from feedback.journal.comparison import same_request
from feedback.journal.rows import headers_json

JSON = "application/json"
STORED, SAME, OTHER = b'{"a": 1, "b": 2}', b'{"b":2,"a":1}', b'{"a":1}'
PRINT = fingerprint("pay", STORED)
TEXT = headers_json([("content-type", b"text/plain")]).decode()


class Row(NamedTuple):
    type: str = "pay"
    fingerprint: bytes | None = PRINT
    own_fingerprint: bool = False
    payload: bytes | None = None
    headers: str | None = None


FRESH = Row(fingerprint=None, payload=STORED)
OWN = Row(fingerprint=fingerprint("pay", OTHER), own_fingerprint=True, payload=STORED)


@pytest.mark.parametrize(
    "row, payload, known, unknown, own",
    [
        (Row(), SAME, True, True, None),
        (Row(), OTHER, False, False, None),
        (Row(), None, False, False, None),
        (Row(type="refund"), SAME, False, False, False),
        (Row(payload=OTHER), OTHER, True, True, True),
        # Its writer knew that producers cannot make it.
        (Row(own_fingerprint=True), SAME, True, None, None),
        (Row(own_fingerprint=True), OTHER, False, None, None),
        (Row(own_fingerprint=True, payload=OTHER), OTHER, True, True, True),
        (OWN, SAME, False, True, None),
        (OWN, OTHER, True, False, None),
        # Nobody who knows its type has seen it.
        (FRESH, STORED, True, True, True),
        (FRESH, SAME, True, True, None),
        (FRESH, OTHER, False, False, None),
        (FRESH, None, False, False, None),
        (FRESH._replace(headers=TEXT), SAME, False, False, None),
        (Row(fingerprint=None), SAME, None, None, None),
        # Of another version, or written by hand.
        (FRESH._replace(headers="7"), SAME, None, None, None),
        (FRESH._replace(headers='[[["x"], "YQ=="]]'), OTHER, None, None, None),
        (FRESH._replace(headers='[["content-type", 1]]'), STORED, True, True, True),
    ],
)
def test_same_request(
    row: Row, payload: bytes | None, known: bool | None, unknown: bool | None, own: bool | None
) -> None:
    """`own`: what is said where the type is known to make its own fingerprint."""

    def asked(*, comparable: bool | None) -> Any:
        return same_request(row, "pay", payload, JSON, comparable=comparable)

    assert [asked(comparable=one) for one in (True, None, False)] == [known, unknown, own]


def test_what_is_no_json_is_compared_by_its_bytes() -> None:
    row = Row(fingerprint=fingerprint("pay", SAME, "text/plain"))
    assert same_request(row, "pay", SAME, "text/plain", comparable=None)
    assert not same_request(row, "pay", STORED, "text/plain", comparable=None)
