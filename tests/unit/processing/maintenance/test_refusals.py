from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from feedback.contract.record import Record, read_again
from feedback.status.memory_store import MemoryStatusStore
from feedback.status.status import Status, StatusWrite
from processing.maintenance.unstarted import refusals

AT = datetime(2026, 1, 2, tzinfo=UTC)


def record(
    request_id: str = "r-1",
    type_: str = "payment.create",
    headers: Sequence[tuple[str, bytes]] = (),
) -> Record:
    pairs = [("ce_id", request_id.encode()), ("ce_type", type_.encode()), *headers]
    return ("requests", 0, 7, 1_700_000_000_000, b"k", b"{}", pairs, type_, None)


@pytest.mark.parametrize("code", ["database_unavailable", "shutdown"])
def test_a_refused_request_is_answered_failed_with_the_code(code: str) -> None:
    refused = refusals([record()], code, AT, 60)

    (write,) = refused.writes
    status = Status.decode(write.value)
    assert (status.id, status.type, status.state) == ("r-1", "payment.create", "failed")
    assert status.code == code
    # Whether a copy of it is done long since nobody could look up: nothing is said of the request.
    assert "this message was" in str(status.reason)
    assert "an earlier one with its id may have " in str(status.reason)
    assert str(status.reason).endswith("; send the same again")
    assert write.bump
    assert write.ttl == 60
    assert refused.counts == {("payment.create", "failed", code): 1}
    assert refused.letters == []


def test_what_could_not_wait_for_its_limit_is_not_told_that_the_consumer_stopped() -> None:
    refused = refusals([record()], "database_unavailable", AT, 60, limited=True)

    reason = str(Status.decode(refused.writes[0].value).reason)
    assert "its type is paused or limited" in reason
    assert "send the same again" in reason


def test_whoever_wants_a_hint_gets_it() -> None:
    refused = refusals([record(headers=[("ce_replyto", b"me")])], "shutdown", AT, 60)

    assert refused.writes[0].reply_to == "me"


def test_messages_that_nobody_sends_again_are_dead_letters() -> None:
    unreadable = ("requests", 0, 8, 0, None, b"", None, None, None)
    typeless = ("requests", 0, 9, 0, None, b"", [("ce_id", b"m")], None, None)
    foreign = ("theirs", 0, 1, 0, None, b"", [("ce_id", b"x"), ("ce_type", b"t")], "t", None)

    refused = refusals([unreadable, record(), typeless, foreign], "shutdown", AT, 60, ["theirs"])

    assert [letter.request_id for letter in refused.letters] == [None, "m", None]
    assert [letter.reason for letter in refused.letters] == ["malformed"] * 3
    assert "it was undecoded when the consumer gave it up" in refused.letters[2].error
    killed = refusals([read_again(foreign)], "shutdown", AT, 60, ["theirs"]).letters[0].error
    assert "it was perhaps in the middle of its run" in killed
    told = [Status.decode(write.value) for write in refused.writes]
    assert [(s.id, s.code) for s in told] == [("r-1", "shutdown"), ("m", "malformed")]
    assert sum(refused.counts.values()) == 1


def test_a_refusal_takes_the_run_after_the_standing_one_and_never_covers_an_outcome() -> None:
    store = MemoryStatusStore()
    done = Status.decode(refusals([record()], "shutdown", AT, 60).writes[0].value)
    store.write(refusals([record()], "shutdown", AT, 60).writes)
    store.write(refusals([record()], "shutdown", AT, 60).writes)

    (status,) = store.read(["r-1"])
    assert status.run == done.run + 1

    value = b'{"v":"000019","id":"r-1","type":"t","state":"done","code":"ok","attempt":1,'
    value += b'"at":"2026-01-02T00:00:00Z"}'
    store.write([StatusWrite("r-1", value, 60)])
    store.write(refusals([record()], "shutdown", AT, 60).writes)
    assert store.read(["r-1"])[0].state == "done"
