from __future__ import annotations

from base64 import b64decode
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from feedback.client.message import draft
from feedback.client.send_clock import SendClock
from feedback.errors import ConfigurationError
from feedback.outbox.names import check_schema_name, in_schema, schema_from_environment
from feedback.outbox.rows import as_json, row_of, shard_of

DUE = datetime(2030, 1, 1, tzinfo=UTC)
OPTIONS: dict[str, Any] = {
    "request_id": "r",
    "key": "customer-1",
    "not_before": datetime.now(UTC) + timedelta(days=1),
    "expires": timedelta(days=2),
    "reference": "order",
    "timeout": 5.0,
    "headers": {"traceparent": "00-a-b-01", "raw": b"\xff"},
}


def test_a_row_holds_just_what_the_client_sends() -> None:
    options = OPTIONS | {"expires": DUE}
    message, submission = draft(
        "t", {"b": 1, "a": "\N{SNOWMAN}"}, topic="t", reply_to=None, clock=SendClock(),
        earlier=lambda _: None, **options,
    )  # fmt: skip
    row = row_of("t", {"b": 1, "a": "\N{SNOWMAN}"}, {**options, "sender": "s"})  # type: ignore[typeddict-item]
    fields = row.fields
    sent = [("ce_id", b"r"), ("ce_type", b"t")]
    sent += [(name, b64decode(value)) for name, value in fields["headers"]]
    assert sorted(sent) == sorted(message.headers)
    assert b64decode(fields["payload"]) == message.value
    assert b64decode(fields["key"]) == message.key
    assert fields["fingerprint"] == row.fingerprint == submission.fingerprint
    assert (fields["sender"], fields["reference"]) == ("s", "order")
    assert datetime.fromisoformat(fields["not_before"]) == OPTIONS["not_before"]
    age = datetime.now(UTC) - datetime.fromisoformat(fields["created_at"])
    assert timedelta(0) <= age < timedelta(minutes=1)
    assert as_json([fields]).isascii()


def test_without_a_key_none_is_written_and_the_id_decides_the_shard() -> None:
    row = row_of("t", {}, {})
    assert row.fields["key"] is None
    assert row.fields["shard"] == shard_of("default", row.id.encode())
    assert row_of("t", {}, {"key": ""}).fields["key"] == ""


def test_a_key_is_in_one_shard_whatever_the_program() -> None:
    keys = (b"a", b"b", b"")
    assert [shard_of("default", key) for key in keys] == [63, 5, 8]  # also of another version
    assert shard_of("x", b"a") == 52
    found = {shard_of("default", b"%d" % n) for n in range(2000)}
    assert found == set(range(64))


@pytest.mark.parametrize(
    "options,error,text",
    [
        ({"sender": ""}, TypeError, "sender"),
        ({"sender": None}, TypeError, "sender"),
        ({"sender": "a\0b"}, ValueError, "zero byte"),
        ({"headers": {"a\0": "x"}}, ValueError, "zero byte"),
        ({"topic": "x"}, TypeError, r"add\(\) has no option 'topic'"),
        ({"request_id": ""}, ValueError, "empty"),
        ({"request_id": "x" * 201}, ValueError, "201 characters"),
        ({"delay": 4e8}, ValueError, "ten years"),
        ({"delay": -1}, ValueError, "past"),
        ({"key": 5}, TypeError, "key"),
    ],
)
def test_what_no_consumer_would_take_gets_no_row(
    options: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        row_of("t", {}, options)


@pytest.mark.parametrize("payload", [float("nan"), object(), b"{", "\ud800"])
def test_payloads_that_are_no_json_get_no_row(payload: Any) -> None:
    with pytest.raises(ValueError, match=r"payload|JSON"):
        row_of("t", payload, {})


@pytest.mark.parametrize("schema", ['a"; DROP', "A", "1a", "a" * 64, "a b"])
def test_a_schema_that_needs_more_than_quotes_is_refused(
    schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONCEPOOL_OUTBOX_SCHEMA", schema)
    with pytest.raises(ConfigurationError, match="ONCEPOOL_OUTBOX_SCHEMA"):
        schema_from_environment()
    with pytest.raises(ConfigurationError):
        in_schema("SELECT FROM :schema.requests", schema)


def test_without_a_setting_the_schema_is_the_contracts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCEPOOL_OUTBOX_SCHEMA", "")
    assert schema_from_environment() == check_schema_name("oncepool_outbox")
