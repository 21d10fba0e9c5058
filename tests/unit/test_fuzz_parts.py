"""What judges the reading of a message that a fuzzer made: it passes what is right, and sees what
is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from feedback.contract import envelope as reading
from feedback.contract.envelope import Envelope
from feedback.contract.record import Record
from feedback.errors import Malformed
from tests.chaos.odd_fuzz import figures, fuzzed_of
from tests.chaos.odd_messages import CHANGES, LETTER, Generator, Message
from tests.chaos.odd_reading import NONE, decoded, encoded, problems, wrong_reason

RIGHT = Message(
    "r-1", "done/ok",
    [("ce_id", b"r-1"), ("ce_type", b"pure"), ("x", b"\xff"), ("ce_timeout", b"2.5"),
     ("ce_expirytime", b"2031-01-01T00:00:00Z"), ("ce_reference", b"ref"), ("ce_replyto", b"c")],
    b'{"n": 1}', key=b"k",
)  # fmt: skip
MISREAD: dict[str, Callable[[Envelope], Envelope]] = {
    "id": lambda found: replace(found, id="r-2"),
    "type": lambda found: replace(found, type="raw"),
    "payload": lambda found: replace(found, payload=b'{"n": 2}'),
    "key": lambda found: replace(found, key=None),
    "place": lambda found: replace(found, offset=8),
    "others": lambda found: replace(found, headers={}),
    "time": lambda found: replace(found, time=found.time * 1000),
}


def test_bytes_are_the_message_that_was_made_of_them() -> None:
    generator = Generator(5)
    for _ in range(500):
        message = generator.next()
        record = decoded(encoded(message))
        value = None if message.value is None else message.value[: NONE - 1]
        assert (record[4], record[5], record[6]) == (message.key, value, message.headers)
    assert decoded(b"")[6] == []


def test_whatever_is_generated_is_read_as_it_has_to_be() -> None:
    generator, seen = Generator(6), set()
    for _ in range(40 * len(CHANGES)):
        message = generator.next()
        record = decoded(encoded(message))
        assert problems(record) == [], message
        seen.add(message.change)
        try:
            reading.read(record)
        except Malformed:
            assert message.end == LETTER, message
        else:
            assert message.end != LETTER, message
    assert seen == {*CHANGES, ""}


@pytest.mark.parametrize("what", MISREAD)
def test_what_is_read_as_something_else_is_seen(what: str) -> None:
    record = decoded(encoded(RIGHT))
    wrong = problems(record, lambda one: MISREAD[what](reading._read(one)))
    assert any(line.startswith(f"{what}: ") for line in wrong), wrong


@pytest.mark.parametrize(
    "name, spoilt",
    [
        ("timeout", 25.0), ("timeout", float("inf")), ("expires_at", 1.0), ("reference", "a\nb"),
        ("reference", "r" * 201), ("content_type", "text/plain"), ("not_before", 5.0),
    ],
)  # fmt: skip
def test_an_option_that_is_read_as_something_else_is_seen(name: str, spoilt: Any) -> None:
    """It is the first time, and right when it is read again."""
    record, times = decoded(encoded(RIGHT)), []

    def read(one: Record) -> Envelope:
        found = reading._read(one)
        times.append(one)
        if len(times) == 1:
            return found
        return replace(found, options=found.options._replace(**{name: spoilt}))

    wrong = problems(record, read)
    assert any(name.replace("_", " ") in line or name in line for line in wrong), wrong
    assert problems(record) == []


@pytest.mark.parametrize("name", ["a\nb", "", "i" * 201])
def test_a_name_that_is_none_is_seen(name: str) -> None:
    record = decoded(encoded(RIGHT))
    wrong = problems(record, lambda one: replace(reading._read(one), id=name))
    assert f"id {name!r}" in wrong


def test_one_of_two_headers_that_is_taken_is_seen() -> None:
    twice = decoded(encoded(replace(RIGHT, headers=[*RIGHT.headers, ("ce_id", b"r-2")])))

    def takes_the_last(record: Record) -> Envelope:
        return reading._read((*record[:6], [*dict(record[6] or []).items()], *record[7:]))

    assert "header ce_id stands 2 times" in problems(twice, takes_the_last)
    assert problems(twice) == []


def test_what_nobody_thought_of_is_seen() -> None:
    def fails(_record: Record) -> Envelope:
        raise KeyError("ce_time")

    assert problems(decoded(encoded(RIGHT)), fails) == ["KeyError: 'ce_time'"]


def test_an_id_that_is_no_text_and_is_taken_for_one_is_seen() -> None:
    headers = [("ce_id", b"\xff"), ("ce_type", b"pure")]

    def takes(one: Record) -> Envelope:
        return replace(reading._read(decoded(encoded(RIGHT))), offset=one[2])

    [wrong] = problems(decoded(encoded(replace(RIGHT, headers=headers))), takes)
    assert wrong.startswith("UnicodeDecodeError")


def test_whoever_refuses_what_a_worker_takes_is_seen() -> None:
    def refuses(_record: Record) -> Envelope:
        raise Malformed("no", "r-1")

    def takes(_record: Record) -> Envelope:
        return reading._read(decoded(encoded(RIGHT)))

    assert problems(decoded(encoded(RIGHT)), refuses) == ["a worker takes it for a request"]
    broken = decoded(encoded(replace(RIGHT, headers=[("ce_type", b"pure")])))
    assert "a worker takes it for malformed" in problems(broken, takes)


def test_a_dead_letter_has_a_reason_and_an_id_or_none() -> None:
    assert wrong_reason(Malformed("too long", "r-1")) == wrong_reason(Malformed("no id")) == []
    assert wrong_reason(Malformed("", "r-1")) == ["a dead letter without a reason"]
    assert wrong_reason(Malformed("no", "a\x00")) == ["a dead letter of the id 'a\\x00'"]


def test_a_fuzzer_that_does_not_get_there_is_no_success(tmp_path: Path) -> None:
    said = "#2 INITED cov: 30 ft: 3\n#9 DONE cov: 41 ft: 4\nstat::number_of_executed_units: 9\n"
    fine = fuzzed_of(0, f"{said}stat::new_units_added:   3\n", [], 1.0)
    assert (fine.runs, fine.new, fine.covered, fine.wrong) == (9, 3, (30, 41), [])
    assert figures(fine)["branches taken"] == 41
    assert fuzzed_of(1, said, [], 1.0).wrong
    assert fuzzed_of(0, "", [], 1.0).wrong
    slow = tmp_path / "timeout-1"
    slow.write_bytes(encoded(RIGHT))
    assert fuzzed_of(70, said, [slow], 1.0).wrong[0].startswith("timeout: ")
