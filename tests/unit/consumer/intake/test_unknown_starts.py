"""Partitions that are ours and not begun."""

from __future__ import annotations

from consumer.intake.unknown_starts import UnknownStarts

A, B, C = ("t", 0), ("t", 1), ("u", 0)


def test_what_nobody_answers_for_is_asked_again_at_growing_pauses() -> None:
    unknown, now, pauses = UnknownStarts(), 100.0, []
    unknown.found([A, B, C], [B, C], now)
    assert unknown.places == (B, C)
    for _ in range(7):
        began = now
        while not unknown.due(now):
            now += 0.5
        pauses.append(now - began)
        unknown.found(unknown.due(now), (B, C), now)
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    assert unknown.tries == 8


def test_an_answer_or_new_partitions_shorten_the_pause() -> None:
    unknown = UnknownStarts()
    unknown.found([B, C], [B, C], 100.0)
    unknown.found([B, C], [B, C], 101.0)
    assert unknown.due(102.5) == ()
    unknown.found([B, C], [C], 103.0)
    assert unknown.due(104.0) == (C,)
    unknown.found([C], [C], 104.0)
    unknown.found([A], [A], 105.0)
    assert unknown.due(106.0) == (C, A), "they are asked about together"
    assert unknown.tries == 1


def test_what_is_gone_or_begun_is_not_asked_about() -> None:
    unknown = UnknownStarts()
    unknown.found([A, B, C], [A, B, C], 100.0)
    unknown.revoked([A, ("v", 9)])
    unknown.found([B], [], 100.5)
    assert unknown.due(200.0) == unknown.places == (C,)
    unknown.found([C], [], 200.0)
    assert unknown.due(300.0) == ()
