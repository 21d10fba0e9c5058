"""Answers that are read from a status store far away."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from feedback.contract.states import State
from feedback.outbox.relay import statuses, transactions
from feedback.outbox.relay.loop import AnswerLoop
from feedback.outbox.relay.settling import Settling
from feedback.status.redis_store import RedisStatusStore
from feedback.status.status import StatusFields, StatusWrite
from stack import Stack
from tests.support import eventually
from tests.support.asked import POLICY, Asked
from tests.support.outbox import Outbox
from tests.support.proxy import Proxy

ROWS = 900
"""Which are asked for in nine parts, of a second each."""


def done(row: dict[str, Any]) -> bytes:
    at, fingerprint = datetime.now(UTC), row["fingerprint"]
    status = StatusFields(row["id"], "t", State.DONE, 1, "ok", 1, at, fingerprint=fingerprint)
    return status.encode()


def test_a_page_that_would_outlast_its_transaction_is_read_in_parts(
    outbox_: Outbox, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "IDLE", 6.0)
    monkeypatch.setattr(statuses, "LONG", 1.5)
    Asked(outbox_, *(f"r{n}" for n in range(ROWS)))
    near = RedisStatusStore(stack.redis, outbox_.schema, timeout=30.0)
    near.write([StatusWrite(row["id"], done(row), 600) for row in outbox_.rows()])
    with Proxy.of(stack.redis) as link:
        link.delay = 0.5
        far = RedisStatusStore(link.before(stack.redis), outbox_.schema, timeout=30.0)
        settling = Settling(outbox_.schema, "default", far, POLICY, inbox=False, settled=None)
        reader = AnswerLoop(outbox_.url, "default", far, settling)
        reader.start()
        try:
            eventually(lambda: settling.ended == ROWS, 60)
        finally:
            reader.stop()
            assert reader.join(60)
    near.close()
