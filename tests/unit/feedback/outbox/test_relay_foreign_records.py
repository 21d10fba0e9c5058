from __future__ import annotations

from typing import Any

import pytest

from feedback.outbox.relay.records import ForeignRecords, results_in
from tests.support.kafka_messages import Said

OURS = b'{"id":"a","type":"t","state":"done","code":"ok","at":"2030-01-01T00:00:00Z"}'


def test_records_of_others_are_passed_over_and_told_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    foreign = ForeignRecords(clock=lambda: now[0])
    theirs = Said(OURS.replace(b'"a"', b"5"))
    messages: Any = [theirs, Said(OURS), theirs]
    assert [result.id for result in results_in(messages, foreign)] == ["a"]
    assert len(caplog.records) == 1
    now[0] = 61.0
    results_in(messages, foreign)
    assert [record.getMessage()[:13] for record in caplog.records] == [
        "1 messages of",
        "2 messages of",
    ]
    assert "results/0/7: not a result record" in caplog.text
