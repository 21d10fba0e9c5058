"""Generated messages, most of them wrong, each with the end that the contract gives it.

A message is a valid one with one thing changed, or several that lead to the same end; which end it
has to have is said here from the contract, not asked of the code under test. Seeded: the same seed
makes the same messages.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

Header: TypeAlias = tuple[str, bytes | None]

LETTER: Final = "letter"
"""It becomes a dead letter and nothing else."""
DONE: Final = "done/ok"
INVALID: Final = "rejected/invalid_payload"
EXPIRED: Final = "rejected/expired"
UNKNOWN: Final = "waiting/unknown_type"
DELAYED: Final = "waiting/delayed"

REFUSED: Final = frozenset({LETTER, INVALID, EXPIRED, UNKNOWN})
"""Ends of what must not run: the others are valid, however odd they look."""
RARE: Final = frozenset({
    *("id_unusual", "time_odd", "delayed", "due_long_ago", "timeout_odd", "timestamp_odd"),
    *("payload_odd", "payload_any_bytes", "structured", "type_unknown"),
})  # fmt: skip
"""Changes that are refused nowhere, or tried again and again: others come more often."""
OFTEN: Final = 3
MAX_PAYLOAD: Final = 4096
"""What the consumer of the flood takes at most, in bytes."""
DAY: Final = 86_400_000


@dataclass(slots=True)
class Message:
    """One Kafka message and its end: `letter`, or state/code of its row."""

    id: str
    end: str
    headers: list[Header]
    value: bytes | None
    key: bytes | None = None
    timestamp: int = 0
    """Milliseconds; 0 is now."""
    change: str = ""
    """What was changed, for who looks for the reason."""
    notes: list[str] = field(default_factory=list)

    def put(self, name: str, content: bytes | None) -> None:
        """Sets a header, in the place of one of that name."""
        self.headers = [header for header in self.headers if header[0] != name]
        self.headers.append((name, content))


Change: TypeAlias = Callable[[random.Random, Message], str]
"""Changes a valid message and returns the end that it has now."""

CHANGES: dict[str, Change] = {}


def change(function: Change) -> Change:
    """Registers one."""
    CHANGES[getattr(function, "__name__", "")] = function
    return function


class Generator:
    """An endless row of messages."""

    def __init__(self, seed: int, *, valid: float = 0.1) -> None:
        """`valid`: the share of those that nothing is wrong with."""
        self._random = random.Random(seed)
        self._seed = seed
        self._valid = valid
        self._changes = [n for n in CHANGES for _ in range(1 if n in RARE else OFTEN)]
        self._number = 0

    def next(self) -> Message:
        """The next one; its id is like no other's of this seed."""
        rng = self._random
        self._number += 1
        name = f"odd-{self._seed}-{self._number}"
        message = Message(name, DONE, [("ce_id", name.encode())], _json({"n": self._number}))
        message.put("ce_type", rng.choice((b"pure", b"raw")))
        message.key = rng.choice((None, b"", name.encode(), _bytes(rng, 40)))
        if rng.random() >= self._valid:
            message.change = rng.choice(self._changes)
            message.end = CHANGES[message.change](rng, message)
        if rng.random() < 0.3:
            _foreign_headers(rng, message)
        rng.shuffle(message.headers)
        return message


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _bytes(rng: random.Random, most: int) -> bytes:
    return rng.randbytes(rng.randint(1, most))


def _not_utf8(rng: random.Random) -> bytes:
    return _bytes(rng, 20) + b"\xff" + _bytes(rng, 20)


def _control(rng: random.Random) -> bytes:
    """A text with a control character."""
    bad = rng.choice(("\x00", "\x01", "\n", "\r", "\t", "\x1b", "\x7f", "\x80", "\x9f"))
    return rng.choice((f"a{bad}b", bad, f"{bad}end", f"end{bad}")).encode()


def _too_long(rng: random.Random) -> bytes:
    letter = rng.choice(("x", "é", "漢", "😀"))
    return (letter * rng.choice((201, 255, 1000, 10_000))).encode()


def _wrong_name(rng: random.Random) -> bytes | None:
    """What is no id, type or reference."""
    return rng.choice((lambda: b"", lambda: None, lambda: _control(rng), lambda: _too_long(rng),
                       lambda: _not_utf8(rng)))()  # fmt: skip


def _wrong_time(rng: random.Random) -> bytes | None:
    return rng.choice((
        b"", None, b"soon", b"2031-02-30T00:00:00Z", b"2031-01-01T00:00:00", b"2031-01-01",
        b"1700000000", b"2031-13-01T00:00:00Z", b"2031-01-01T25:00:00Z", b"\xff",
        b"2031-01-01T00:00:00Z ", b"-2031-01-01T00:00:00Z", b"2031-01-01T00:00:00+99:00",
        "\uff12031-01-01T00:00:00Z".encode(), b"2031-01-01T00:00:61Z", b"9" * 5000,
    ))  # fmt: skip


def _foreign_headers(rng: random.Random, message: Message) -> None:
    """Headers that mean nothing to the consumer and change no end."""
    for _ in range(rng.choice((1, 2, 5, 100))):
        name = rng.choice(("x-note", "X-" + "n" * rng.randint(1, 300), "ce_", "ce_other", "é", "",
                           "\x01", "a b", "Ce_Id", "CE_TYPE"))  # fmt: skip
        message.headers.append((name, rng.choice((None, b"", b"text", _bytes(rng, 200), b"\x00"))))


# Ids and types


@change
def id_missing(rng: random.Random, message: Message) -> str:
    message.headers = [header for header in message.headers if header[0] != "ce_id"]
    return LETTER


@change
def id_wrong(rng: random.Random, message: Message) -> str:
    message.put("ce_id", _wrong_name(rng))
    return LETTER


@change
def id_twice(rng: random.Random, message: Message) -> str:
    message.headers.append(("ce_id", rng.choice((message.id.encode(), b"other", b"", None))))
    return LETTER


@change
def id_unusual(rng: random.Random, message: Message) -> str:
    """200 characters of any alphabet are an id."""
    letter = rng.choice(
        ("x", "é", "漢", "😀", "'", '"', "\\", "%", " ", "\u200b", "\u202e", "\ue000")
    )
    message.id = (message.id + letter * 200)[:200]
    message.put("ce_id", message.id.encode())
    return DONE


@change
def type_missing(rng: random.Random, message: Message) -> str:
    message.headers = [header for header in message.headers if header[0] != "ce_type"]
    return LETTER


@change
def type_wrong(rng: random.Random, message: Message) -> str:
    message.put("ce_type", _wrong_name(rng))
    return LETTER


@change
def type_twice(rng: random.Random, message: Message) -> str:
    message.headers.append(("ce_type", rng.choice((b"pure", b"other", b"", None))))
    return LETTER


@change
def type_unknown(rng: random.Random, message: Message) -> str:
    name = rng.choice(
        ("nobody", "Pure", "pure ", "x" * 200, "漢" * 200, "'; --", "%s", "{}", "\u202e")
    )
    message.put("ce_type", name.encode())
    return UNKNOWN


# Optional headers


@change
def time_wrong(rng: random.Random, message: Message) -> str:
    message.put(rng.choice(("ce_time", "ce_expirytime", "ce_notbefore")), _wrong_time(rng))
    return LETTER


@change
def time_odd(rng: random.Random, message: Message) -> str:
    """The producer's time may be any."""
    message.put("ce_time", rng.choice((
        b"0001-01-01T00:00:00Z", b"9999-12-31T23:59:59.999999Z", b"1969-12-31T23:59:59-14:00",
        b"2016-12-31T23:59:60Z", b"2031-01-01t00:00:00z", b"2031-01-01T00:00:00.123456789123Z",
    )))  # fmt: skip
    return DONE


@change
def expired(rng: random.Random, message: Message) -> str:
    message.put("ce_expirytime", rng.choice((
        b"2001-01-01T00:00:00Z", b"1970-01-01T00:00:00Z", b"0002-01-01T00:00:00Z",
        b"1969-12-31T23:59:60Z",
    )))  # fmt: skip
    return EXPIRED


@change
def delayed(rng: random.Random, message: Message) -> str:
    message.put("ce_notbefore", rng.choice((b"2031-01-01T00:00:00Z", b"2030-12-31T23:59:60+14:00")))
    return DELAYED


@change
def delayed_too_far(rng: random.Random, message: Message) -> str:
    message.put("ce_notbefore", rng.choice((b"9999-12-31T23:59:59Z", b"2950-01-01T00:00:00Z")))
    return LETTER


@change
def due_long_ago(rng: random.Random, message: Message) -> str:
    message.put("ce_notbefore", rng.choice((b"0001-01-01T00:00:00Z", b"1999-01-01T00:00:00Z")))
    return DONE


@change
def timeout_wrong(rng: random.Random, message: Message) -> str:
    message.put("ce_timeout", rng.choice((
        b"", None, b"0", b"0.0", b"-1", b"1e3", b"nan", b"inf", b"ten", b"1,5", b"\xff", b" 1",
        b"9" * 400, "٣".encode(),
    )))  # fmt: skip
    return LETTER


@change
def timeout_odd(rng: random.Random, message: Message) -> str:
    message.put("ce_timeout", rng.choice((b"5", b"999999999999999", b"10.000000000000001")))
    return DONE


@change
def reference_wrong(rng: random.Random, message: Message) -> str:
    message.put("ce_reference", _wrong_name(rng))
    return LETTER


@change
def text_header_wrong(rng: random.Random, message: Message) -> str:
    name = rng.choice(("traceparent", "tracestate", "ce_source", "ce_specversion", "ce_replyto",
                       "content-type"))  # fmt: skip
    message.put(name, _not_utf8(rng))
    return LETTER


@change
def known_header_twice(rng: random.Random, message: Message) -> str:
    name = rng.choice(("ce_time", "ce_expirytime", "ce_notbefore", "ce_timeout", "ce_reference",
                       "ce_replyto", "content-type"))  # fmt: skip
    message.headers += [(name, b"5"), (name, b"5")]
    return LETTER


@change
def timestamp_odd(rng: random.Random, message: Message) -> str:
    # Brokers take these; a day ahead is about what they may be told to refuse.
    message.timestamp = rng.choice((1, 1000, 4_102_444_800_000, 253_402_300_799_999,
                                    1_700_000_000_000_000, 2**62))  # fmt: skip
    return DONE


# Payloads


@change
def payload_no_json(rng: random.Random, message: Message) -> str:
    message.put("ce_type", b"pure")
    message.value = rng.choice((
        lambda: b"", lambda: b"{not", lambda: b'{"n": NaN}', lambda: b'{"n": Infinity}',
        lambda: b"\xff\xfe", lambda: b'{"n": 1', lambda: b'"\\ud800"', lambda: b'{"n": 01}',
        lambda: b"\xef\xbb\xbf{}", lambda: b'{"a": "\x00"}', lambda: b"nul", lambda: b"{}{}",
        lambda: b"[" * 2000, lambda: _not_utf8(rng), lambda: b'{"n": 1e400}' + b"}",
        lambda: b'{"n": 1.7976931348623159e309, "l": 99999999999999999999}',
    ))()  # fmt: skip
    return INVALID


@change
def payload_wrong_shape(rng: random.Random, message: Message) -> str:
    message.put("ce_type", b"shaped")
    message.value = _json(rng.choice((
        None, 5, "text", [], {}, {"amount": "much"}, {"amount": None}, {"amount": [1]},
        {"amount": 1.5}, {"amount": {"x": "\x00"}}, {"amount": "\x00"}, {"\x00": 1},
    )))  # fmt: skip
    return INVALID


@change
def payload_odd(rng: random.Random, message: Message) -> str:
    """JSON all the same."""
    message.put("ce_type", b"pure")
    message.value = rng.choice((
        b"null", b"true", b"0", b'""', b"[]", b" {} \n", b'{"a":1,"a":2}',
        b'{"\\u0000": "\\u0000"}',
        b'{"n": 123456789012345678901234567890}', b'{"n": -0.0}', b'{"n": 1E5}',
        b"[" * 90 + b"]" * 90, '{"n": "\u2028😀"}'.encode(),
    ))  # fmt: skip
    return DONE


@change
def payload_absent(rng: random.Random, message: Message) -> str:
    message.value = None
    return INVALID


@change
def payload_too_large(rng: random.Random, message: Message) -> str:
    size = rng.choice((MAX_PAYLOAD + 1, 3 * MAX_PAYLOAD, 100_000))
    message.value = rng.choice((b'"' + b"x" * size + b'"', b"\xff" * size, b"[" * size))
    return INVALID


@change
def payload_any_bytes(rng: random.Random, message: Message) -> str:
    """A handler that takes bytes takes any."""
    message.put("ce_type", b"raw")
    message.put("content-type", rng.choice((b"application/octet-stream", b"text/plain", b"x", b"\t",
                                            b"application/pdf;" + b"p" * 500)))  # fmt: skip
    message.value = rng.choice((b"", b"\x00", _bytes(rng, 500)))
    return DONE


@change
def content_type_not_json(rng: random.Random, message: Message) -> str:
    message.put("ce_type", b"pure")
    message.put(
        "content-type", rng.choice((b"text/plain", b"x", b"application/jsonx", b";", b"\n"))
    )
    return INVALID


# Structured mode


def _event(message: Message) -> dict[str, Any]:
    return {"specversion": "1.0", "id": message.id, "source": "/odd", "type": "pure",
            "data": {"n": 1}}  # fmt: skip


def _fold(message: Message, value: bytes | None) -> None:
    message.headers = [("content-type", b"application/cloudevents+json; charset=utf-8")]
    message.value = value


@change
def structured(rng: random.Random, message: Message) -> str:
    event = _event(message)
    if rng.random() < 0.5:
        event |= {"other": rng.choice((1, 1.5, True, "text")), "subject": None}
    if rng.random() < 0.3:
        event["data_base64"] = base64.b64encode(_json(event.pop("data"))).decode()
    _fold(message, _json(event))
    return DONE


@change
def structured_without_data(rng: random.Random, message: Message) -> str:
    event = _event(message)
    del event["data"]
    _fold(message, _json(event))
    return INVALID


@change
def structured_wrong(rng: random.Random, message: Message) -> str:
    event = _event(message)
    event |= rng.choice((
        {"id": None}, {"id": 5}, {"id": ""}, {"id": "a\u0000b"}, {"id": "x" * 201}, {"id": [1]},
        {"type": None}, {"type": 5}, {"type": "\n"}, {"notbefore": "soon"}, {"timeout": -1},
        {"timeout": {}}, {"data_base64": "!"}, {"data_base64": 5}, {"reference": ""},
        {"expirytime": 5}, {"datacontenttype": 5.5, "data_base64": "e30="}, {"other": [1]},
    ))  # fmt: skip
    if "data_base64" in event and event["data_base64"] == "!":
        del event["data"]
    _fold(message, _json(event))
    return LETTER


@change
def structured_no_event(rng: random.Random, message: Message) -> str:
    _fold(message, rng.choice((None, b"", b"null", b"[]", b"{", b"5", b'"text"', b"\xff",
                               b"[" * 3000, b'{"id": "\\ud800"}')))  # fmt: skip
    return LETTER


@change
def structured_other_format(rng: random.Random, message: Message) -> str:
    message.put("content-type", rng.choice((b"application/cloudevents-batch+json",
                                            b"application/cloudevents+avro",
                                            b"application/cloudeventsx")))  # fmt: skip
    return LETTER
