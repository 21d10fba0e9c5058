"""A result record as a Kafka message."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from feedback.client.result import Result
from feedback.contract.states import State
from feedback.journal.result_outbox import ResultRecord, StoredResult, result_message

AT = datetime(2030, 5, 17, 12, 30, 0, 250_000, tzinfo=UTC)


def stored(**fields: Any) -> StoredResult:
    values = {
        "request_id": "order-17",
        "type": "order.place",
        "state": "done",
        "code": "ok",
        **fields,
    }
    return StoredResult(1, AT, ResultRecord(**values))


def test_the_value_says_how_the_request_ended() -> None:
    message = result_message(stored(result=b'{"total":4200}'))

    assert message.value == (
        b'{"id":"order-17","type":"order.place","state":"done","code":"ok",'
        b'"result":{"total":4200},"at":"2030-05-17T12:30:00.250000Z"}'
    )


def test_key_and_headers_name_the_request() -> None:
    message = result_message(stored(request_id="Bestellung-ß"))

    assert message.key == "Bestellung-ß".encode()
    assert message.headers == [
        ("ce_id", "Bestellung-ß".encode()),
        ("ce_type", b"order.place"),
        ("content-type", b"application/json"),
    ]


def test_without_a_result_there_is_no_field() -> None:
    fields = orjson.loads(result_message(stored(state="failed", code="timeout")).value)

    assert fields == {
        "id": "order-17", "type": "order.place", "state": "failed", "code": "timeout",
        "at": "2030-05-17T12:30:00.250000Z",
    }  # fmt: skip


def test_a_result_left_out_is_told() -> None:
    fields = orjson.loads(result_message(stored(result=b"[1,2]"), omit_result=True).value)

    assert "result" not in fields
    assert fields["result_omitted"] is True


def test_a_reader_has_it_back_as_it_was() -> None:
    message = result_message(stored(result=b'{"cents":123456789012345678901}'))

    assert Result.decode(message.value) == Result(
        "order-17", "order.place", State.DONE, "ok", {"cents": 123456789012345678901}, AT
    )


def test_a_reader_sees_that_a_result_was_left_out() -> None:
    result = Result.decode(result_message(stored(result=b"1"), omit_result=True).value)

    assert (result.result, result.result_omitted) == (None, True)


@pytest.mark.parametrize(
    "value",
    [None, b"", b"no", b"[]", b"7", b"{}", b'{"id":"a","type":"b","state":"x","code":"c"}'],
)
def test_what_is_no_record_is_refused(value: bytes | None) -> None:
    with pytest.raises(ValueError):
        Result.decode(value)


@pytest.mark.parametrize(
    "name, value",
    [
        ("id", "5"), ("id", '["a"]'), ("id", '""'), ("id", '"a\\u0000"'), ("type", "null"),
        ("code", "7"), ("code", '"a\\u0000"'), ("at", "5"), ("at", '"2030-01-01T00:00:00"'),
        ("at", '"0001-01-01T00:00:00+14:00"'), ("state", "[]"),
    ],
)  # fmt: skip
def test_what_others_mean_by_the_same_names_is_no_record(name: str, value: str) -> None:
    fields = {"id": '"a"', "type": '"t"', "state": '"done"', "code": '"ok"'}
    fields |= {"at": '"2030-01-01T00:00:00Z"', name: value}
    text = ",".join(f'"{key}":{value}' for key, value in fields.items())
    with pytest.raises(ValueError, match="not a result record"):
        Result.decode(f"{{{text}}}".encode())
