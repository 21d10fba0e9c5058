"""What a gateway writes into an outbox."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from consumer.gateway.database import DatabaseThreads
from consumer.gateway.sending import OutboxSender
from feedback.errors import RequestIdInUse
from feedback.postgres import open_connection
from tests.support.outbox import Outbox


def test_a_payload_that_cant_be_compared_is_that_of_the_same_request(outbox_: Outbox) -> None:
    """Written anew, as its handler's own fingerprint is not known here; under its type alone."""
    threads = DatabaseThreads(
        "outbox_database_url", lambda _: open_connection(outbox_.url, "oncepool gateway"), 1
    )
    no_statuses: Any = None
    sender = OutboxSender(threads, outbox_.schema, no_statuses, ["own", "other"])

    async def script() -> None:
        for type_ in ("own", "compared"):
            await sender.send(type_, b'{"at":1}', {"request_id": type_})
        assert (await sender.send("own", b'{"at":2}', {"request_id": "own"})).id == "own"
        for type_, id_ in (("compared", "compared"), ("other", "own"), ("own", "compared")):
            with pytest.raises(RequestIdInUse):
                await sender.send(type_, b'{"at":2}', {"request_id": id_})

    asyncio.run(script())
    threads.close()
    assert [(row["id"], bytes(row["payload"])) for row in outbox_.rows()] == [
        ("own", b'{"at":1}'),
        ("compared", b'{"at":1}'),
    ]
