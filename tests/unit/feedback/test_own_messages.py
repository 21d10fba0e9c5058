"""What a client or an outbox takes, consumers can read: of no message of theirs it is said that it
could not be read."""

from __future__ import annotations

import json
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from typing import Any

import time_machine
from hypothesis import example, given
from hypothesis import strategies as st

from feedback.contract.envelope import read
from feedback.contract.headers import LONGEST_DELAY
from feedback.outbox.relay.batch import ClaimedRow
from feedback.outbox.relay.reading import as_message
from feedback.outbox.rows import row_of
from tests.support.client import drafted

APART = timedelta(minutes=59)
"""By which a consumer's clock may be behind: brokers refuse what is an hour ahead."""
CONTRACTS = ["ce_source", "ce_specversion", "ce_time", "content-type", "traceparent", "tracestate"]
TEXT = st.text(max_size=8)
HEADERS = st.dictionaries(
    st.sampled_from(CONTRACTS) | TEXT,
    TEXT | st.binary(max_size=4) | st.sampled_from(["text/plain", "Application/CloudEvents+json"]),
    max_size=3,
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "request_id": TEXT | st.text(min_size=199, max_size=201),
        "key": TEXT,
        "delay": st.sampled_from([0.0, 60.0, LONGEST_DELAY]),
        "expires": st.sampled_from([-1.0, 60.0, datetime.max.replace(tzinfo=UTC)]),
        "reference": TEXT,
        "timeout": st.floats(),
        "headers": HEADERS,
    },
)


@given(type_=st.sampled_from(["t", "payment.create"]) | TEXT, options=OPTIONS)
@example(type_="t", options={"headers": {"traceparent": b"\xff"}})
@example(type_="t", options={"delay": LONGEST_DELAY})
def test_what_is_taken_can_be_read(type_: str, options: dict[str, Any]) -> None:
    try:
        message, _ = drafted(type_, {"a": 1}, **options)
        fields = row_of(type_, {"a": 1}, options).fields  # type: ignore[arg-type]
    except (ValueError, OverflowError):
        return
    now = datetime.now(UTC)
    with time_machine.travel(now - APART):
        found = read(
            (
                "topic", 0, 0, message.timestamp, message.key, message.value,
                list(message.headers), None, None,
            )
        )  # fmt: skip
        row = as_message(
            ClaimedRow(
                1, fields["id"], fields["type"], None, b64decode(fields["payload"]),
                json.dumps(fields["headers"]), now, now, 0,  # type: ignore[arg-type]
            )
        )  # fmt: skip
    assert (found.id, found.type) == (message.id, type_)
    assert row.unreadable is None
