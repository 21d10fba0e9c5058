"""From what a producer adds to the row that keeps it, checked as a client checks what it sends."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, cast

from feedback.client.message import SubmitOptions, draft
from feedback.client.send_clock import SendClock
from feedback.outbox.names import DEFAULT_SENDER, SHARDS
from feedback.tracing.switch import TRACING

_CLOCK: Final = SendClock()
COLUMN_HEADERS: Final = frozenset({"ce_id", "ce_type"})
"""Headers that have columns of their own."""


class AddOptions(SubmitOptions, total=False):
    """What may be said of a request that is added, beside its type and payload."""

    sender: str
    """Which of the relay's senders it goes through: topic and cluster. `default` unless given."""


class OutboxRow(NamedTuple):
    """One request, the same each time it is sent."""

    id: str
    sender: str
    fingerprint: str
    """In hex."""
    fields: dict[str, Any]
    """Column -> value as JSON has it; bytes in base64."""


def row_of(type: str | Callable[..., Any], payload: Any, options: AddOptions) -> OutboxRow:
    """The row. Raises ValueError for what no consumer takes, TypeError for a wrong option."""
    unknown = options.keys() - AddOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"add() has no option {min(unknown)!r}")
    sender: object = options.get("sender", DEFAULT_SENDER)
    if not isinstance(sender, str) or not sender:
        raise TypeError(f"sender is {sender!r}: it has to be the name of a sender")
    _refuse_nul("the sender", sender)
    given = {name: value for name, value in options.items() if name != "sender"}
    message, submission = draft(
        type,
        payload,
        topic="",  # the relay knows it
        reply_to=None,
        clock=_CLOCK,
        earlier=lambda _: None,
        **cast("SubmitOptions", given),
    )
    headers = [(name, value) for name, value in message.headers if name not in COLUMN_HEADERS]
    if "traceparent" not in dict(headers):
        headers += TRACING.context()  # what decides on the request is where its trace comes from
    for name, _ in headers:
        _refuse_nul("a header's name", name)
    fingerprint = submission.fingerprint or ""
    due = dict(headers).get("ce_notbefore")
    keyed = options.get("key") is not None
    return OutboxRow(
        message.id,
        sender,
        fingerprint,
        {
            "id": message.id,
            "type": submission.type,
            "sender": sender,
            "key": _text(message.key) if keyed else None,
            "payload": _text(message.value),
            "headers": [(name, _text(value)) for name, value in headers],
            "reference": options.get("reference"),
            "not_before": None if due is None else due.decode(),
            "fingerprint": fingerprint,
            "shard": shard_of(sender, message.key),
            "created_at": _time(message.timestamp),
        },
    )


def shard_of(sender: str, key: bytes) -> int:
    """The shard of a key: never another one, whichever program asks."""
    return zlib.crc32(b"%b\0%b" % (sender.encode(), key)) % SHARDS


def as_json(value: Sequence[Any]) -> str:
    """JSON of nothing but ASCII, which every driver and every encoding takes."""
    return json.dumps(value, separators=(",", ":"))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _time(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds // 1000, UTC)
    return moment.replace(microsecond=milliseconds % 1000 * 1000).isoformat()


def _refuse_nul(what: str, text: str) -> None:
    if "\0" in text:
        raise ValueError(f"{what} holds a zero byte, which PostgreSQL has no text for")
