"""Decoders: what they may return, and what becomes of their mistakes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from feedback.errors import Malformed
from processing import App, Message, RawMessage, RegistrationError, Skip
from processing.handlers.decoder import decode
from processing.testing import Kit, KitError

WHEN = datetime(2026, 1, 2, tzinfo=UTC)
PAIRS = [("origin", b"erp"), ("x", b"\xff")]
RECORD = ("legacy", 3, 7, 5000, b"key", b"17;book", PAIRS, None, None)


def test_message_becomes_an_envelope() -> None:
    def decoder(raw: RawMessage) -> Message:
        assert raw.value is not None
        number, article = raw.value.decode().split(";")
        payload = {"article": article}
        return Message(f"order-{number}", "order", payload, reference="r", not_before=WHEN)

    envelope = decode(decoder, RECORD)
    assert not isinstance(envelope, Skip)
    assert (envelope.id, envelope.type, envelope.payload) == (
        "order-17", "order", b'{"article":"book"}',
    )  # fmt: skip
    assert (envelope.topic, envelope.partition, envelope.offset) == ("legacy", 3, 7)
    assert envelope.key == b"key"
    assert envelope.time == 5.0
    assert envelope.headers == {"origin": "erp", "x": b"\xff"}
    assert envelope.options.reference == "r"
    assert envelope.options.not_before == WHEN.timestamp()
    assert envelope.options.content_type == "application/json"


def test_bytes_key_and_skip() -> None:
    message = Message("1", "t", b"\xff", key=b"own", content_type="image/png")
    envelope = decode(lambda _: message, RECORD)
    assert not isinstance(envelope, Skip)
    assert (envelope.payload, envelope.key) == (b"\xff", b"own")
    assert decode(lambda _: Skip("a heartbeat"), RECORD) == Skip("a heartbeat")


@pytest.mark.parametrize(
    "message, text, known_id",
    [
        (None, "returned NoneType, not a Message or a Skip", None),
        (Message("", "t", {}), "the decoder's id is empty", None),
        (Message("x" * 201, "t", {}), "the decoder's id has 201", None),
        (Message(7, "t", {}), "the decoder's id is int, not text", None),  # type: ignore[arg-type]
        (Message("a\ud800", "t", {}), "the decoder's id is not UTF-8", None),
        (Message("1", "", {}), "the decoder's type is empty", "1"),
        (Message("1", "t", {2}), "the decoder's payload is not JSON", "1"),
        (Message("1", "t", {}, reference=""), "the decoder's reference is empty", "1"),
        (
            Message("1", "t", {}, not_before=datetime(2026, 1, 1)),  # noqa: DTZ001
            "not_before has no time zone",
            "1",
        ),
        (Message("1", "t", {}, not_before=5), "not_before is int", "1"),  # type: ignore[arg-type]
        (
            Message("1", "t", {}, not_before=datetime.max.replace(tzinfo=UTC)),
            "not_before is 9999-12-31 .*, more than ten years ahead",
            "1",
        ),
    ],
)
def test_wrong_messages(message: Any, text: str, known_id: str | None) -> None:
    with pytest.raises(Malformed, match=text) as caught:
        decode(lambda _: message, RECORD)
    assert caught.value.id == known_id


def test_a_decoder_that_raises() -> None:
    def decoder(raw: RawMessage) -> Message:
        raise KeyError("article")

    with pytest.raises(Malformed, match="decoder of topic 'legacy' failed: KeyError: 'article'"):
        decode(decoder, RECORD)


def test_registration() -> None:
    app = App()

    @app.handler("t")
    def handler(payload: Any) -> None: ...

    @app.decoder("legacy")
    def decoder(raw: RawMessage) -> Message:
        return Message("1", "t", raw.value)

    assert app.decoders == {"legacy": decoder}
    with pytest.raises(RegistrationError, match="has a decoder already"):
        app.decoder("legacy")(decoder)
    wrongs: list[Any] = [lambda: None, lambda raw, more: None, lambda *, raw: None]
    for wrong in wrongs:
        with pytest.raises(RegistrationError, match="takes one parameter, the raw message"):
            app.decoder("other")(wrong)
    with Kit(app) as kit:
        envelope = kit.decode("legacy", b"{}", headers=[("a", b"b")])
        assert not isinstance(envelope, Skip)
        assert envelope.payload == b"{}"
        with pytest.raises(KitError, match="no decoder of topic 'legac'; did you mean 'legacy'"):
            kit.decode("legac", b"")


@pytest.mark.parametrize(
    "said, read", [(b"2026-01-02T00:00:00Z", WHEN.timestamp()), (b"7", 5.0), (b"\xff", 5.0)]
)
def test_the_time_of_a_message_that_was_sent_again_is_its_first(said: bytes, read: float) -> None:
    record = (*RECORD[:6], [*PAIRS, ("ce_time", said)], None, None)
    envelope = decode(lambda _: Message("1", "t", {}), record)
    assert not isinstance(envelope, Skip)
    assert envelope.time == read
