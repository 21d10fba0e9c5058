from __future__ import annotations

import base64
import json
import tracemalloc
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedback.contract.envelope import JSON, Envelope, headers_for, read
from feedback.contract.headers import parse_time
from feedback.contract.record import Record, record_size
from feedback.errors import Malformed

NOON = datetime(2030, 5, 1, 12, 0, tzinfo=UTC)
STAMP = 1_700_000_000_123
PLAIN = [("ce_id", b"order-17"), ("ce_type", b"payment.create")]


def record(
    headers: list[tuple[str, bytes | None]] | None, value: bytes | None = b"{}", **changes: Any
) -> Record:
    key, type_ = changes.get("key", b"k"), changes.get("type")
    return ("requests", 3, 42, STAMP, key, value, headers, type_, None)


def with_header(name: str, value: bytes | None) -> Record:
    return record([*PLAIN, (name, value)])


def structured(event: Any, **changes: Any) -> Record:
    value = event if isinstance(event, bytes) else json.dumps(event).encode()
    kind = changes.pop("content_type", b"application/cloudevents+json; charset=utf-8")
    return record([("content-type", kind), *changes.pop("headers", [])], value, **changes)


def refused(message: Record) -> Malformed:
    with pytest.raises(Malformed) as caught:
        read(message)
    return caught.value


@pytest.mark.parametrize(
    "others",
    [
        [],
        [("ce_replyto", b"replies")],
        [("traceparent", b"00-1"), ("x", b"\xff"), ("empty", None)],
        [("ce_timeout", b"5"), ("ce_reference", b"r"), ("ce_time", b"2026-01-01T00:00:00Z")],
    ],
)
def test_a_content_type_that_is_the_default_says_what_none_does(
    others: list[tuple[str, bytes | None]],
) -> None:
    found = read(record([*PLAIN, ("content-type", b"application/json"), *others]))
    assert found == read(record([*PLAIN, *others]))
    assert found.options.content_type == JSON
    for other in ("application/JSON", "application/json; charset=utf-8"):
        found = read(record([*PLAIN, ("content-type", other.encode()), *others]))
        assert found.options.content_type == other
        assert "content-type" not in found.headers


def test_the_plain_message() -> None:
    assert read(record(PLAIN, b'{"a":1}')) == Envelope(
        id="order-17",
        type="payment.create",
        payload=b'{"a":1}',
        key=b"k",
        headers={},
        time=STAMP / 1000,
        reply_to=None,
        topic="requests",
        partition=3,
        offset=42,
    )


def test_every_header_of_the_contract() -> None:
    envelope = read(
        record(
            [
                *PLAIN,
                ("ce_specversion", b"1.0"),
                ("ce_source", b"/shop"),
                ("ce_time", b"2030-05-01T12:00:00Z"),
                ("content-type", b"text/plain"),
                ("ce_expirytime", b"2030-05-01T14:00:00+02:00"),
                ("ce_notbefore", b"2030-05-01t12:00:00.5z"),
                ("ce_timeout", b"2.5"),
                ("ce_reference", "größe".encode()),
                ("ce_replyto", b"oncepool:hints:1"),
                ("traceparent", b"00-1-2-01"),
                ("x-binary", b"\xff\x00"),
                ("x-null", None),
            ]
        )
    )
    assert envelope.time == envelope.options.expires_at == NOON.timestamp()
    assert envelope.options.not_before == NOON.timestamp() + 0.5
    assert (envelope.options.timeout, envelope.options.reference) == (2.5, "größe")
    assert (envelope.options.content_type, envelope.reply_to) == ("text/plain", "oncepool:hints:1")
    assert envelope.headers == {
        "ce_specversion": "1.0",
        "ce_source": "/shop",
        "traceparent": "00-1-2-01",
        "x-binary": b"\xff\x00",
        "x-null": "",
    }


def test_the_type_that_main_has_read_is_taken() -> None:
    assert read(record(PLAIN, type="payment.create")).type == "payment.create"
    assert "control character" in str(refused(record(PLAIN, type="a\tb")))


@pytest.mark.parametrize(
    "headers, id",
    [
        (None, None),
        ([], None),
        ([("ce_type", b"t")], None),
        ([("ce_id", None), ("ce_type", b"t")], None),
        ([("ce_id", b""), ("ce_type", b"t")], None),
        ([("ce_id", b"x" * 201), ("ce_type", b"t")], None),
        ([("ce_id", b"a\nb"), ("ce_type", b"t")], None),
        ([("ce_id", "a\x85b".encode()), ("ce_type", b"t")], None),
        ([("ce_id", b"\xff"), ("ce_type", b"t")], None),
        ([("ce_id", b"a"), ("ce_id", b"b"), ("ce_type", b"t")], None),
        ([("ce_id", b"a")], "a"),
        ([("ce_id", b"a"), ("ce_type", b"")], "a"),
        ([("ce_id", b"a"), ("ce_type", b"t" * 201)], "a"),
        ([("ce_id", b"a"), ("ce_type", b"\x00")], "a"),
        ([("ce_id", b"a"), ("ce_type", b"\xc3")], "a"),
        ([("ce_id", b"a"), ("ce_type", b"t"), ("ce_type", b"u")], "a"),
    ],
)
def test_without_a_valid_id_and_type_it_is_malformed(headers: Any, id: str | None) -> None:
    assert refused(record(headers)).id == id


@pytest.mark.parametrize(
    "name, value",
    [
        ("ce_expirytime", b"tomorrow"),
        ("ce_expirytime", b"2030-05-01T12:00:00"),  # no offset: whose noon?
        ("ce_expirytime", b"2030-05-01"),
        ("ce_expirytime", b"20300501T120000Z"),  # ISO 8601, not RFC 3339
        ("ce_expirytime", b"2030-13-01T12:00:00Z"),
        ("ce_expirytime", b"0000-01-01T00:00:00Z"),
        ("ce_expirytime", b"2030-05-01T12:00:00+99:00"),
        ("ce_expirytime", b"2030-05-01T12:00:00+24:00"),
        ("ce_expirytime", b"2030-05-01T12:00:00+02:60"),
        ("ce_expirytime", b"2030-05-01T24:00:00Z"),
        ("ce_expirytime", None),
        ("ce_notbefore", b"1893499200"),
        ("ce_notbefore", b"2999-01-01T00:00:00Z"),
        ("ce_notbefore", "\uff12030-05-01T12:00:00Z".encode()),
        ("ce_time", b"\xff"),
        ("ce_timeout", b"0"),
        ("ce_timeout", b"-1"),
        ("ce_timeout", b"nan"),
        ("ce_timeout", b"inf"),
        ("ce_timeout", b"1_0"),
        ("ce_timeout", b"5s"),
        ("ce_timeout", b"9" * 400),
        ("ce_timeout", b"1e-7"),
        ("ce_timeout", b"0.0000000000000001"),
        ("ce_timeout", b""),
        ("ce_reference", b""),
        ("ce_reference", b"a\x00"),
        ("ce_reference", b"\xff"),
        ("ce_replyto", b"\xff"),
        ("content-type", b"\xff"),
        ("traceparent", b"\xff"),
        ("ce_source", b"\xff"),
    ],
)
def test_a_header_that_cannot_be_read_is_malformed_with_the_id(
    name: str, value: bytes | None
) -> None:
    error = refused(with_header(name, value))
    assert error.id == "order-17"
    assert name in str(error)


def test_of_unknown_headers_that_stand_twice_the_last_counts() -> None:
    message = record([*PLAIN, ("x", b"1"), ("x", b"2")])
    assert read(message).headers == {"x": "2"}


def test_limits_are_inclusive_and_in_characters() -> None:
    name = "ü" * 200
    message = record([("ce_id", name.encode()), ("ce_type", name.encode())])
    assert read(message).id == read(message).type == name


def test_characters_that_are_odd_but_no_control_characters_are_allowed() -> None:
    name = "a\u2028b\u200b\u00a0\U0001f600"
    assert read(record([("ce_id", name.encode()), ("ce_type", b"t")])).id == name


def test_a_leap_second() -> None:
    assert parse_time("2016-12-31T23:59:60Z") == datetime(2017, 1, 1, tzinfo=UTC).timestamp()
    assert parse_time("2016-12-31T23:59:60.25Z") % 1 == 0.25


@given(st.integers(0, 200_000_000_000_000_000), st.integers(-1439, 1439))
def test_times_of_every_offset_are_read(microseconds: int, minutes: int) -> None:
    zone = timezone(timedelta(minutes=minutes))
    time = (datetime(1970, 1, 3, tzinfo=UTC) + timedelta(microseconds=microseconds)).astimezone(
        zone
    )
    assert parse_time(time.isoformat()) == pytest.approx(time.timestamp(), abs=1e-6)


@pytest.mark.no_cover
@given(st.text(max_size=60))
def test_any_text_is_a_time_or_a_value_error(text: str) -> None:
    with suppress(ValueError):
        assert isinstance(parse_time(text), float)


def test_a_structured_event() -> None:
    envelope = read(
        structured(
            {
                "specversion": "1.0",
                "id": "order-17",
                "type": "payment.create",
                "time": "2030-05-01T12:00:00Z",
                "expirytime": "2030-05-01T12:00:00Z",
                "timeout": 5,
                "replyto": "oncepool:hints:1",
                "reference": None,
                "sampled": True,
                "data": {"b": 1, "a": 123456789012345678901234567890},
            },
            headers=[("ce_type", b"from.a.header"), ("x-tenant", b"blue")],
            type="from.a.header",
        )
    )
    assert (envelope.id, envelope.type) == ("order-17", "payment.create")
    assert envelope.payload == b'{"b":1,"a":123456789012345678901234567890}'
    assert envelope.options.content_type == JSON
    assert envelope.time == envelope.options.expires_at == NOON.timestamp()
    assert (envelope.options.timeout, envelope.options.reference) == (5.0, None)
    assert envelope.reply_to == "oncepool:hints:1"
    assert envelope.headers == {
        "x-tenant": "blue",
        "ce_specversion": "1.0",
        "ce_sampled": "true",
    }


@pytest.mark.parametrize(
    "event, payload",
    [
        ({"data_base64": base64.b64encode(b"\x00\xff").decode()}, b"\x00\xff"),
        ({"data": "text", "datacontenttype": "text/plain"}, b"text"),
        ({"data": "text"}, b'"text"'),
        ({"data": 0}, b"0"),
        ({"data": None}, None),
        ({}, None),
    ],
)
def test_payloads_of_structured_events(event: dict[str, Any], payload: bytes | None) -> None:
    assert read(structured({"id": "a", "type": "t", **event})).payload == payload


def test_a_structured_event_hands_on_its_trace_as_any_message_does() -> None:
    """Where both name one the event counts; W3C's headers have no `ce_`."""
    event = {"id": "a", "type": "t", "traceparent": "00-1-2-01", "tracestate": "a=1"}
    envelope = read(structured(event, headers=[("traceparent", b"00-3-4-01")]))
    assert envelope.headers == {"traceparent": "00-1-2-01", "tracestate": "a=1"}


def test_what_a_structured_event_lacks_is_named_as_its_attribute() -> None:
    assert str(refused(structured({"id": "a"}))) == "attribute type is missing"


@pytest.mark.parametrize(
    "event, id",
    [
        (b"", None),
        (b"{", None),
        (b"[]", None),
        (b'{"id":"a","type":"t","data":NaN}', None),
        ({"type": "t"}, None),
        ({"id": 5, "type": "t"}, None),
        ({"id": True, "type": "t"}, None),
        ({"id": "a", "type": True}, "a"),
        ({"id": "a", "type": "t", "data_base64": True}, "a"),
        ({"id": "a", "type": "t", "data": "x", "datacontenttype": 5}, "a"),
        ({"id": "a\x01", "type": "t"}, None),
        ({"id": "a"}, "a"),
        ({"id": "a", "type": ["t"]}, "a"),
        ({"id": "a", "type": "t", "data": 1, "data_base64": "AA=="}, "a"),
        ({"id": "a", "type": "t", "data_base64": "?"}, "a"),
        ({"id": "a", "type": "t", "data_base64": {}}, "a"),
        ({"id": "a", "type": "t", "time": "now"}, "a"),
        ({"id": "a", "type": "t", "timeout": -1}, "a"),
        ({"id": "a", "type": "t", "timeout": 1e22}, "a"),
        ({"id": "a", "type": "t", "other": {"nested": 1}}, "a"),
        ({"id": "a", "type": "t", "data": "x", "datacontenttype": ["text/plain"]}, "a"),
        (b'{"id":"a","type":"t","data":%s}' % (b"[" * 1000 + b"]" * 1000), "a"),
    ],
)
def test_structured_events_that_are_malformed(event: Any, id: str | None) -> None:
    assert refused(structured(event)).id == id


@pytest.mark.parametrize("seconds", [3.3000000000000003, 1 / 3, 1e-07, 2.5, 30, 123456.000001])
def test_a_timeout_is_read_however_a_double_is_written(seconds: float) -> None:
    """As text, and as a number of an event; it is the one that our client writes of it."""
    written = dict(headers_for("a", "t", timeout=seconds))["ce_timeout"]
    event = structured({"id": "a", "type": "t", "timeout": seconds})
    texts = {written.decode(), f"{seconds:.40f}", format(Decimal(repr(seconds)), "f")}
    for message in (event, *(with_header("ce_timeout", text.encode()) for text in texts)):
        assert read(message).options.timeout == float(written)


@pytest.mark.parametrize("event", [b"", b"{", b"[]", {"type": "t"}, {"id": None, "type": "t"}])
@pytest.mark.parametrize("header, id", [(b"named", "named"), (b"\xff", None), (b"", None)])
def test_an_event_that_names_no_id_is_the_headers(
    event: Any, header: bytes, id: str | None
) -> None:
    assert refused(structured(event, headers=[("ce_id", header)])).id == id
    other = structured(
        event, headers=[("ce_id", header)], content_type=b"application/cloudevents+avro"
    )
    assert refused(other).id == id


@pytest.mark.parametrize("theirs", [5, "a\x01", ""])
def test_an_event_whose_id_is_none_is_not_the_headers(theirs: Any) -> None:
    message = structured({"id": theirs, "type": "t"}, headers=[("ce_id", b"named")])
    assert refused(message).id is None


def test_what_nobody_thought_of_is_malformed_too() -> None:
    # No message has such a timestamp: whatever its reading raises, others are in the same hands.
    good = structured({"id": "a", "type": "t"})
    odd: Any = (*good[:3], "noon", *good[4:])
    assert "could not be read" in str(refused(odd))


@pytest.mark.parametrize(
    "kind", [b"application/cloudevents-batch+json", b"application/cloudevents+avro"]
)
def test_structured_formats_that_are_not_supported(kind: bytes) -> None:
    error = refused(structured({"id": "a", "type": "t"}, content_type=kind))
    assert kind.decode() in str(error)


def test_what_headers_for_writes_is_read_back() -> None:
    headers = headers_for(
        "order-17",
        "payment.create",
        time=NOON,
        expires=NOON + timedelta(hours=1),
        not_before=NOON.astimezone(timezone(timedelta(hours=-3))),
        timeout=0.25,
        reference="r",
        reply_to="channel",
        extra={"content-type": "text/plain", "x-text": "ä", "x-bytes": b"\xff"},
    )
    envelope = read(record(list(headers)))
    assert (envelope.id, envelope.type) == ("order-17", "payment.create")
    assert envelope.time == envelope.options.not_before == NOON.timestamp()
    assert envelope.options.expires_at == NOON.timestamp() + 3600
    assert (envelope.options.timeout, envelope.options.reference) == (0.25, "r")
    assert (envelope.reply_to, envelope.options.content_type) == ("channel", "text/plain")
    assert envelope.headers == {"x-text": "ä", "x-bytes": b"\xff"}


names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=200)


@given(names, names, st.one_of(st.none(), st.floats(0.001, 1e9)))
def test_any_valid_request_survives_the_wire(id: str, type: str, timeout: float | None) -> None:
    envelope = read(record(list(headers_for(id, type, timeout=timeout))))
    assert (envelope.id, envelope.type) == (id, type)
    assert envelope.options.timeout == (
        None if timeout is None else pytest.approx(timeout, abs=1e-6)
    )


@given(
    st.none()
    | st.lists(
        st.tuples(
            st.sampled_from(
                ["ce_id", "ce_type", "content-type", "ce_time", "ce_timeout", "ce_replyto", "x"]
            ),
            st.none() | st.binary(max_size=12) | st.just(b"application/cloudevents+json"),
        ),
        max_size=6,
    ),
    st.none() | st.binary(max_size=20) | st.just(b'{"id":"a","type":"t","data":1}'),
)
def test_whatever_comes_is_read_or_malformed(
    headers: list[tuple[str, bytes | None]] | None, value: bytes | None
) -> None:
    try:
        envelope = read(record(headers, value))
    except Malformed as error:
        name, kind = error.id, "t"
    else:
        name, kind = envelope.id, envelope.type
    assert name is None or 1 <= len(name) <= 200
    assert 1 <= len(kind) <= 200


@pytest.mark.parametrize(
    "arguments",
    [
        {"id": ""},
        {"id": "a\n"},
        {"type": "t" * 201},
        {"timeout": 0},
        {"timeout": float("nan")},
        {"timeout": float("inf")},
        {"timeout": 1e-16},
        {"time": datetime(2030, 1, 1)},  # noqa: DTZ001  (the case)
        {"reference": ""},
        {"extra": {"ce_id": "b"}},
        {"extra": {"traceparent": b"\xff"}},
        {"extra": {"ce_source": b"\xff"}},
    ],
)
def test_headers_for_refuses_what_a_consumer_would_refuse(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        headers_for(**{"id": "a", "type": "t", **arguments})


def test_record_size_counts_content() -> None:
    empty = record_size(record(None, None, key=None))
    full = record_size(record([("name", b"1234"), ("null", None)], b"12345678", key=b"12"))
    assert full - empty > 8 + 2 + 4 + 4 + 4


def test_record_size_counts_what_headers_take_in_memory() -> None:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        # As a client makes them: each name and content is an object of its own.
        headers = [(bytes(b"%d" % n).decode(), b"%d" % n) for n in range(10_000)]
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    most = record_size(record(headers, None)) - record_size(record([], None))
    assert 0.9 * (after - before) < most < 1.5 * (after - before)
