"""Messages that are sent long after they were made: what they say of their time, and what is read
of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import orjson
import pytest

from feedback.contract.envelope import Envelope, read
from feedback.contract.ids import time_of
from feedback.contract.late_messages import LATE, timely
from feedback.contract.times import EARLIEST, moment

NOW = datetime.now(UTC)
WEEK = timedelta(days=7)
EARLIER, LATER = (f"019a0000-0000-7{part}-8000-000000000000" for part in ("100", "900"))
"""Ids of one millisecond in 2025."""


def sent(made: datetime, *headers: tuple[str, bytes], value: bytes = b"{}") -> tuple[int, Envelope]:
    """Its timestamp, and what a consumer reads."""
    timestamp, more = timely(made, headers, NOW)
    pairs: list[tuple[str, bytes | None]] = [*headers, *more]
    return timestamp, read(("t", 0, 0, timestamp, None, value, pairs, None, None))


def named(request_id: str) -> list[tuple[str, bytes]]:
    return [("ce_id", request_id.encode()), ("ce_type", b"t")]


@pytest.mark.parametrize("age", [timedelta(0), timedelta(seconds=LATE / 4), -WEEK])
def test_what_is_sent_soon_has_its_own_time_and_no_further_header(age: timedelta) -> None:
    made = NOW - age
    assert timely(made, named("a"), NOW) == (round(made.timestamp() * 1000), [])


@pytest.mark.parametrize("made", [NOW - timedelta(seconds=2 * LATE), NOW - WEEK, EARLIEST])
def test_what_is_late_goes_with_the_present_time_and_stays_as_old_as_it_is(made: datetime) -> None:
    timestamp, envelope = sent(made, *named("a"))
    assert timestamp == round(NOW.timestamp() * 1000)
    assert envelope.exact_time == round(made.timestamp() * 1000) / 1000


def test_of_two_that_were_made_in_one_millisecond_the_later_stays_the_newer() -> None:
    """By their ids, as where their messages had that time."""
    made = time_of(EARLIER)
    assert made is not None
    times = [sent(moment(made), *named(one))[1].exact_time for one in (EARLIER, LATER)]
    assert times == pytest.approx([made, time_of(LATER)], abs=1e-6)
    assert times[0] < times[1]


@pytest.mark.parametrize("said", [b"2020-01-01T00:00:00Z", b"no time"])
def test_a_time_that_it_says_itself_stays(said: bytes) -> None:
    assert timely(NOW - WEEK, [*named("a"), ("ce_time", said)], NOW)[1] == []


@pytest.mark.parametrize("said", [{}, {"time": "2020-01-01T00:00:00Z"}])
def test_an_event_in_structured_mode_keeps_its_time(said: dict[str, str]) -> None:
    event = {"specversion": "1.0", "id": "a", "type": "t", "source": "/", **said}
    kind = ("content-type", b"application/cloudevents+json")
    _, envelope = sent(NOW - WEEK, kind, value=orjson.dumps(event))
    own = datetime.fromisoformat(said["time"]) if said else NOW - WEEK
    assert envelope.time == pytest.approx(own.timestamp(), abs=0.001)
