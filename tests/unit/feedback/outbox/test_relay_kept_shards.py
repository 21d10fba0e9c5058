"""Which shards count as kept by another session, and what is said of that."""

from __future__ import annotations

import pytest

from feedback.outbox.relay.kept_shards import KEPT_AFTER, LOOK_EVERY, KeptShards, LockedShard

MINUTE = 60.0


class Shards:
    """Those that are locked, on a clock of the test."""

    def __init__(self) -> None:
        self.now = 0.0
        self.found: list[LockedShard] = []
        self.looks = 0
        self.kept = KeptShards("default", lambda: self.now)

    def locked(self) -> list[LockedShard]:
        self.looks += 1
        return self.found

    def pass_by(self, seconds: float) -> None:
        """A step each second."""
        for _ in range(int(seconds)):
            self.kept.look(self)
            self.now += 1.0


def test_a_transaction_that_has_shards_for_half_a_minute_is_told_of_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    shards = Shards()
    shards.found = [LockedShard(n, "700", "pid 17 psql") for n in range(3)]
    shards.pass_by(KEPT_AFTER)
    assert (shards.kept.why, caplog.messages) == (None, [])
    shards.pass_by(2 * MINUTE)
    assert shards.kept.why is not None
    assert len(caplog.messages) == 2
    assert "default: 3 shards are kept locked by another session (pid 17 psql)" in caplog.text
    assert shards.looks == (KEPT_AFTER + 2 * MINUTE) / LOOK_EVERY
    shards.found = []
    shards.pass_by(LOOK_EVERY)
    assert shards.kept.why is None
    assert "free" in caplog.messages[-1]


def test_relays_at_work_have_another_transaction_with_each_batch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shards = Shards()
    for number in range(60):
        shards.found = [LockedShard(7, str(number), "pid 18 oncepool relay")]
        shards.pass_by(LOOK_EVERY)
        assert shards.kept.why is None
    assert caplog.messages == []
