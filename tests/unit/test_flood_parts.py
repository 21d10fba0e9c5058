"""What judges a flood of malformed messages: it passes what is right, and sees each thing wrong."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.chaos.odd_flood import MOST_MEMORY, too_much, until_refused, wrong_statuses
from tests.chaos.odd_ledger import GIVEN_UP, NOTHING, Group, wrong
from tests.chaos.odd_messages import DELAYED, DONE, INVALID, LETTER, REFUSED, UNKNOWN, Generator
from tests.chaos.real.resources import Held, Sample


def group(**more: Any) -> Group:
    """Three requests that were done."""
    done = Group(DONE, "", DONE, 0, 1, again=False, messages=3, examples=["1", "2", "3"])
    return done._replace(**more)


RIGHT = [
    group(),
    group(wanted=LETTER, found=NOTHING, letters=1, effects=0),
    group(wanted=INVALID, found=INVALID, effects=0),
    group(wanted=DELAYED, found=DELAYED, effects=0),
    group(wanted=UNKNOWN, found=UNKNOWN, effects=0, again=True),
    group(wanted=UNKNOWN, found=GIVEN_UP, effects=0, again=True),
]
WRONG = [
    (group(found=NOTHING, effects=0), "nothing, not done/ok"),
    (group(found=NOTHING), "nothing, not done/ok"),
    (group(found="failed/handler_error", effects=0), "failed/handler_error, not done/ok"),
    (group(effects=2), "2 effects"),
    (group(effects=0), "0 effects"),
    (group(letters=1), "1 dead letters"),
    (group(again=True), "not at once"),
    (group(wanted=LETTER, found=NOTHING, letters=0, effects=0), "0 dead letters"),
    (group(wanted=LETTER, found=NOTHING, letters=2, effects=0), "2 dead letters"),
    (group(wanted=LETTER, found=NOTHING, letters=1), "1 effects"),
    (group(wanted=LETTER, letters=1), "done/ok, not letter"),
    (group(wanted=INVALID, found=INVALID), "1 effects"),
    (group(wanted=INVALID, found=GIVEN_UP, effects=0), "dead/unknown_type, not rejected"),
    (group(wanted=None), "a row that nobody sent"),
    (group(wanted=None, found=NOTHING), "an effect that nobody sent"),
    (group(wanted=None, found=NOTHING, letters=1, effects=0), "a letter that nobody sent"),
]


def test_what_has_its_end_is_right() -> None:
    assert wrong(RIGHT) == []


@pytest.mark.parametrize("spoilt, why", WRONG)
def test_each_wrong_end_is_seen(spoilt: Group, why: str) -> None:
    [line] = wrong([*RIGHT, spoilt])
    assert line.startswith("3 of valid (1, 2, 3): ")
    assert why in line


def test_a_status_that_is_not_the_end_is_seen() -> None:
    ends = {"a": DONE, "b": INVALID, "c": UNKNOWN}
    assert wrong_statuses(ends, lambda ids: {"a": DONE, "b": INVALID, "c": GIVEN_UP}) == []
    assert len(wrong_statuses(ends, lambda ids: {"a": INVALID, "b": GIVEN_UP})) == 3


def test_so_many_are_sent_that_enough_must_be_refused() -> None:
    sent = list(until_refused(Generator(3), 500))
    assert sum(message.end in REFUSED for message in sent) == 500
    assert sent[-1].end in REFUSED
    assert len({message.id for message in sent}) == len(sent) > 600


def memory(more: float) -> list[Sample]:
    """Of a main process that grows by so many MiB in ten minutes."""
    chance = random.Random(1)
    return [
        Sample(n * 2.0, held=[Held(0, "main", 1, 1, 90, 60 + chance.random() + more * n / 300,
                                   20, 5, {})])
        for n in range(300)
    ]  # fmt: skip


def test_memory_that_grows_with_what_was_sent_is_seen() -> None:
    assert too_much(memory(0)) == []
    assert too_much(memory(20)) == []
    assert "rises" in too_much(memory(40))[0]
    assert too_much(memory(40)[:20]) == []
    assert "held" in too_much([Sample(0.0, held=[Held(0, "main", 1, 1, 0, MOST_MEMORY + 1, 1, 1,
                                                      {})])])[0]  # fmt: skip
