"""Messages as bytes that a fuzzer can change, and what the reading of one has to come to. Pure.

What is read is compared with what the message says, by rules that stand here from the contract. The
code under test is handed in, so that it can be shown that other code fails.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

from pydantic import BaseModel

from consumer.intake.kafka_records import _type_of
from feedback.contract import envelope as reading
from feedback.contract.envelope import Envelope
from feedback.contract.headers import OURS, headers_for
from feedback.contract.payloads import NoMemoryToParse
from feedback.contract.record import Record
from feedback.contract.states import State
from feedback.errors import Malformed
from processing import App
from processing.handlers.outcomes import safe_text
from processing.worker.reading import Limits, read_task
from tests.chaos.odd_messages import MAX_PAYLOAD, Message

Read = Callable[[Record], Envelope]

NONE: Final = 0xFFFF
"""In place of a length: nothing stands there."""
LATER: Final = 1_900_000_000_000
"""Milliseconds: the time of messages that name none."""
NO_NAME: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
CLOUD: Final = "application/cloudevents"
ENDS: Final = frozenset({State.FAILED, State.REJECTED, State.WAITING})
"""That reading alone may give a request."""
NEAR: Final = 0.001
"""Seconds by which times may differ that were written and read again: floats have no more."""

app = App()


class Amount(BaseModel):
    amount: int


@app.handler("pure")
def pure(payload: Any) -> None: ...


@app.handler("raw", max_timeout=60)
def raw(payload: bytes) -> None: ...


@app.handler("shaped")
def shaped(payload: Amount) -> None: ...


# As bytes


def encoded(message: Message) -> bytes:
    """A message as the fuzzer gets it."""
    parts = [message.timestamp.to_bytes(8, "little"), _field(message.key), _field(message.value)]
    for name, content in message.headers:
        parts += [_field(name.encode()), _field(content)]
    return b"".join(parts)


def _field(content: bytes | None) -> bytes:
    if content is None:
        return NONE.to_bytes(2, "little")
    content = content[: NONE - 1]
    return len(content).to_bytes(2, "little") + content


def decoded(data: bytes) -> Record:
    """The record that these bytes are: any bytes are one."""
    timestamp = int.from_bytes(data[:8], "little") & (2**63 - 1)
    fields = _fields(data[8:])
    key, value = next(fields, None), next(fields, None)
    headers = [((name or b"").decode(errors="replace"), next(fields, None)) for name in fields]
    kind = _type_of(headers)
    return ("odd", 0, 7, timestamp or LATER, key, value, headers, kind, None)


def _fields(data: bytes) -> Iterator[bytes | None]:
    at = 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 2], "little")
        at += 2
        if length == NONE:
            yield None
        else:
            yield data[at : at + length]
            at += length


# What has to hold


def problems(record: Record, read: Read = reading._read) -> list[str]:
    """What is wrong with how a record is read, in words.

    `read` has nothing around it that makes what nobody thought of a malformed message.
    """
    try:
        return _found(record, read)
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        return [f"{type(error).__name__}: {error}"]


def _found(record: Record, read: Read) -> list[str]:
    try:
        found = read(record)
    except Malformed as error:
        return wrong_reason(error) + wrong_task(record, malformed=True)
    headers = dict(record[6] or [])
    structured = (headers.get("content-type") or b"").lower().startswith(CLOUD.encode())
    wrong = wrong_names(found) + repeated(record)
    if not structured:
        wrong += not_as_said(found, record)
    return wrong + wrong_again(found, record, read) + wrong_task(record, malformed=False)


def wrong_reason(error: Malformed) -> list[str]:
    """A dead letter says why it is one, in a text that can be kept."""
    why = safe_text(str(error))
    wrong = [] if why and "\x00" not in why else ["a dead letter without a reason"]
    why.encode()
    if error.id is not None and not is_name(error.id):
        wrong.append(f"a dead letter of the id {error.id!r}")
    return wrong


def is_name(text: str) -> bool:
    """As the contract has ids, types and references."""
    return 1 <= len(text) <= 200 and NO_NAME.search(text) is None


def wrong_names(found: Envelope) -> list[str]:
    names = {"id": found.id, "type": found.type, "reference": found.options.reference}
    wrong = [f"{what} {name!r}" for what, name in names.items() if name is not None
             and not is_name(name)]  # fmt: skip
    if found.options.timeout is not None and not 0 < found.options.timeout < 1e16:
        wrong.append(f"a timeout of {found.options.timeout}")
    return wrong


def repeated(record: Record) -> list[str]:
    """Headers that stand twice and could mean either, where the message was read all the same."""
    times = Counter(name for name, _ in record[6] or [] if name in OURS)
    return [f"header {name} stands {n} times" for name, n in times.items() if n > 1]


def not_as_said(found: Envelope, record: Record) -> list[str]:
    """A message in binary mode is read as it stands."""
    headers = dict(record[6] or [])
    said = {
        "id": ((headers.get("ce_id") or b"").decode(), found.id),
        "type": ((headers.get("ce_type") or b"").decode(), found.type),
        "payload": (record[5], found.payload),
        "key": (record[4], found.key),
        "place": (record[:3], (found.topic, found.partition, found.offset)),
        "others": ({n: c or b"" for n, c in headers.items() if n not in OURS},
                   {n: c if isinstance(c, bytes) else c.encode()
                    for n, c in found.headers.items()}),
    }  # fmt: skip
    if "ce_time" not in headers:
        said["time"] = (record[3] / 1000, found.time)
    return [f"{what}: {a!r} was read as {b!r}" for what, (a, b) in said.items() if a != b]


def wrong_again(found: Envelope, record: Record, read: Read) -> list[str]:
    """What was read, written by a producer and read again, is the same."""
    options = found.options
    if options.content_type.lower().startswith(CLOUD):
        return []  # a payload of that kind in an event of its own: written anew it would be one
    extra = {**found.headers, "content-type": options.content_type}
    try:
        pairs = headers_for(
            found.id, found.type, reply_to=found.reply_to, extra=extra, **options.arguments()
        )
        again = read((*record[:5], found.payload, [*pairs], None, None))
    except (ValueError, Malformed) as error:
        return [f"read, it cannot be written: {error}"]
    wrong = [
        f"{what} {a!r} was read again as {b!r}"
        for what, a, b in (
            ("id", found.id, again.id), ("type", found.type, again.type),
            ("payload", found.payload, again.payload), ("headers", found.headers, again.headers),
            ("reply_to", found.reply_to, again.reply_to),
            ("content type", options.content_type, again.options.content_type),
            ("reference", options.reference, again.options.reference),
            ("timeout", options.timeout, again.options.timeout),
        ) if a != b
    ]  # fmt: skip
    for what in ("time", "expires_at", "not_before"):
        one, two = getattr(options, what), getattr(again.options, what)
        if (one is None) != (two is None) or not near(one or 0.0, two or 0.0):
            wrong.append(f"{what} {one!r} was read again as {two!r}")
    return wrong


def near(one: float, two: float) -> bool:
    """Of times before the epoch, and of the last day that there is, only so much is kept."""
    if one <= 0 or one > 253_402_000_000:
        return True
    return abs(one - two) < NEAR


def wrong_task(record: Record, *, malformed: bool) -> list[str]:
    """A worker finds the same, and gives the request an end, or a payload and its fingerprint."""
    try:
        task = read_task(app, 0, record, Limits(30.0, MAX_PAYLOAD))
    except Malformed:
        return [] if malformed else ["a worker takes it for malformed"]
    except NoMemoryToParse:
        return ["no memory to parse it"]
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        return [f"in a worker {type(error).__name__}: {error}"]
    outcome, wrong = task.outcome, []
    if malformed:
        wrong.append("a worker takes it for a request")
    elif outcome is not None:
        if outcome.state not in ENDS or "\x00" in (outcome.reason or ""):
            wrong.append(f"its end is {outcome}")
    elif task.fingerprint is None or not 0 < task.timeout <= 60:
        wrong.append(f"fingerprint {task.fingerprint!r}, {task.timeout} s")
    return wrong
