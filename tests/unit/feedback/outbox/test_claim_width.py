"""How many shards a claim takes."""

from __future__ import annotations

from feedback.outbox.relay.claim_width import ClaimWidth


def test_few_while_they_fill_a_batch_and_all_again_when_they_do_not() -> None:
    width = ClaimWidth(16)
    seen = [width.shards]
    for _ in range(5):
        width.claimed(full=True)
        seen.append(width.shards)
    assert seen == [16, 8, 4, 4, 4, 4]
    width.claimed(full=False)
    assert width.shards == 16


def test_never_more_than_it_may() -> None:
    width = ClaimWidth(1)
    width.claimed(full=True)
    assert width.shards == 1
