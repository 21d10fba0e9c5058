"""The sender with a real server that is stopped or hangs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from feedback.backoff import Breaker
from feedback.contract.states import State
from feedback.status.redis_store import RedisStatusStore
from feedback.status.sender import StatusSender
from feedback.status.status import StatusFields, StatusWrite
from tests.support import eventually
from tests.support.private_valkey import PrivateValkey

AT = datetime(2030, 5, 1, tzinfo=UTC)
CHUNKS = 400


def chunk(number: int) -> list[StatusWrite]:
    return [
        StatusWrite(
            f"{number}-{row}",
            StatusFields(
                f"{number}-{row}", "t", State.DONE, 1, code="ok", attempt=1, at=AT
            ).encode(),
            60,
        )
        for row in range(25)
    ]


@pytest.fixture
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateValkey]:
    server = PrivateValkey(tmp_path_factory.mktemp("valkey"))
    yield server
    server.resume()
    server.stop()


@pytest.mark.parametrize("fault", ["stopped", "paused"])
def test_a_server_that_is_away_costs_put_nothing(valkey: PrivateValkey, fault: str) -> None:
    store = RedisStatusStore(valkey.url)
    sender = StatusSender(store, breaker=Breaker(0.05, 0.2))
    sender.put(chunk(0))
    assert sender.flush(60)
    if fault == "stopped":
        valkey.stop()
    else:
        valkey.pause()
    sender.put(chunk(1))
    eventually(lambda: sender.stats().open)  # the fault has taken effect
    for number in range(2, CHUNKS):
        sender.put(chunk(number))
    assert sender.stats().queued + sender.dropped == (CHUNKS - 1) * 25
    assert sender.stats().queued <= 10_000
    if fault == "stopped":
        valkey.start()
    else:
        valkey.resume()
    last = f"{CHUNKS - 1}-24"
    eventually(lambda: sender.stats().written >= sender.stats().queued and not sender.stats().open)
    assert sender.flush(60)
    assert store.read([last])[0] is not None
    sender.close()
    store.close()


def test_while_it_hangs_a_flush_ends_with_its_time_out(valkey: PrivateValkey) -> None:
    sender = StatusSender(RedisStatusStore(valkey.url, timeout=0.2))
    valkey.pause()
    sender.put(chunk(0))
    assert not sender.close(3600)
    assert sender.dropped == 25


def test_a_status_too_large_for_the_time_out_holds_up_no_other(valkey: PrivateValkey) -> None:
    # 60 MB do not go through a socket in 20 ms.
    store = RedisStatusStore(valkey.url, timeout=0.02)
    sender = StatusSender(store, breaker=Breaker(0.02, 0.1))
    large = StatusFields(
        "large", "t", State.DONE, 1, code="ok", attempt=1, at=AT, error="x" * 60_000_000
    ).encode()

    sender.put([*chunk(0), StatusWrite("large", large, 60), *chunk(1)])

    ids = [one.id for one in (*chunk(0), *chunk(1))]
    patient = RedisStatusStore(valkey.url, timeout=30)
    eventually(lambda: None not in patient.read(ids))
    eventually(lambda: sender.stats().queued == 0)
    assert patient.read(["large"]) == [None]
    assert sender.dropped == 1
    sender.close()


def test_after_a_long_outage_statuses_come_back_with_the_server(valkey: PrivateValkey) -> None:
    sender = StatusSender(RedisStatusStore(valkey.url))
    valkey.stop()
    sender.put(chunk(0))
    # By then the pauses are as long as they become.
    eventually(lambda: sender.stats().failures >= 8)
    assert sender._breaker.pause(time.monotonic()) <= 1.0
    with_server = RedisStatusStore(valkey.url, timeout=30.0)
    valkey.start()
    eventually(lambda: with_server.read(["0-0"]) != [None])
    sender.close(60)
    with_server.close()
