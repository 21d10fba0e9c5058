"""What a dead letter's message would become, without a database."""

from __future__ import annotations

import base64

import orjson

from feedback.operations.dead_message import type_to_run

DEEP = b'{"specversion":"1.0","id":"a","type":"x","data":' + b"[" * 1_000 + b"]" * 1_000 + b"}"
"""Some Pythons read this and can't write it."""


def row(payload: bytes) -> dict[str, object]:
    sent = {"content-type": b"application/cloudevents+json", "ce_type": b"payment.create"}
    pairs = [[name, base64.b64encode(value).decode()] for name, value in sent.items()]
    return {"headers": pairs, "payload": payload}


def test_the_type_of_an_event_is_the_one_in_its_body() -> None:
    assert type_to_run(row(orjson.dumps({"type": "x", "data": 1}))) == "x"


def test_an_event_that_is_read_deeper_than_it_is_written_runs_as_none() -> None:
    assert type_to_run(row(DEEP)) in (None, "x")
