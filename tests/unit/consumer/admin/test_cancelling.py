"""Cancels of what runs that come to no end, as Redis or the journal goes away meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime

import pytest
import redis

from consumer.admin import cancelling
from consumer.admin.cancelling import Cancelled, cancel_running
from consumer.admin.journal import JournalBusy
from consumer.config.settings import Settings
from feedback.contract.states import CANCELLED, State
from feedback.operations.request_reads import Row
from feedback.status.status import Status, StatusFields, StatusWrite

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
MINE = "cancelled by ann: too slow"


class Place:
    """A journal, and the Redis in which instances are asked."""

    def __init__(self) -> None:
        self.ended: dict[str, Status] = {}
        self.waiting: set[str] = set()
        """Those that the journal takes out of the queue."""
        self.asks: list[str] = []
        self.chunks: set[int | None] = set()
        """Those that were named."""
        self.unread: set[str] = set()
        self.asked: Callable[[str], object] = lambda _: None
        self.withdrawn: Callable[[], object] = lambda: None
        self.away = False
        """Redis is."""

    def look_up(self, _: Settings, ids: Sequence[str]) -> list[Status | None]:
        return [self.ended.get(one) for one in ids]

    def take(self, ids: Sequence[str]) -> list[Row]:
        self.withdrawn()
        return [{"id": one} for one in ids if one in self.waiting]

    def end(
        self, id: str, state: State = State.CANCELLED, code: str = CANCELLED,
        reason: str | None = MINE,
    ) -> None:  # fmt: skip
        fields = StatusFields(id, "a.b", state, 1, code=code, attempt=1, at=BEGAN, reason=reason)
        self.ended[id] = Status.decode(StatusWrite.of(fields).value)

    def ask(self, _instance: str, id: str, _reason: str, chunk: int | None) -> bool:
        self.asked(id)
        self._answer()
        self.asks.append(id)
        self.chunks.add(chunk)
        was_read = id not in self.unread
        self.unread.add(id)
        return was_read

    def withdraw(self, _instance: str, id: str) -> bool:
        self._answer()
        try:
            self.unread.remove(id)
        except KeyError:
            return False
        return True

    def _answer(self) -> None:
        if self.away:
            raise redis.ConnectionError("away")

    def cancel(self, *ids: str, wait: float = 30.0, **place: int) -> Cancelled:
        began = {"worker": 0, "instance": "i", "since": BEGAN.isoformat(), **place}
        places = {one: {"request_id": one, **began} for one in ids}
        return cancel_running(Settings(), places, self.take, reason=MINE, wait=wait)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    here = Place()
    monkeypatch.setattr(cancelling, "look_up", here.look_up)
    monkeypatch.setattr(cancelling, "connect", lambda _: nullcontext())
    monkeypatch.setattr(cancelling, "Cancellations", lambda *_: here)
    monkeypatch.setattr(cancelling, "LOOK_EVERY", 0.0)
    monkeypatch.setattr(cancelling, "ASK_EVERY", 0.0)
    return here


def late(found: Cancelled) -> dict[str, str]:
    return {one.id: one.reason for one in found.late}


def test_what_has_ended_is_told_where_redis_goes_away(place: Place) -> None:
    def goes_away(id: str) -> None:
        if id == "b" and "b" in place.asks:
            place.away = True
        elif "b" in place.asks:
            place.end("a")

    place.asked = goes_away
    found = place.cancel("a", "b", "c")
    assert [row["id"] for row in found.rows] == ["a"]
    asked = "was asked to end in worker 0 of i; then Redis did not answer; look at it again"
    assert late(found) == {"b": asked, "c": asked}


def test_what_was_not_asked_any_more_is_told_as_such(place: Place) -> None:
    def goes_away(id: str) -> None:
        place.away = id == "b"

    place.asked = goes_away
    said = late(place.cancel("a", "b", "c"))
    assert [one for one, text in said.items() if "was asked to end" in text] == ["a", "b"]
    assert "was not told to end, as Redis did not answer" in said["c"]


def test_nothing_is_told_as_unchanged_where_the_journal_goes_away(place: Place) -> None:
    def busy() -> None:
        if place.asks:
            place.unread.remove("a")
            raise JournalBusy("nothing was asked or changed")

    place.withdrawn = busy
    said = late(place.cancel("a", "b"))
    assert "was asked to end in worker 0 of i; then the journal did not answer" in said["a"]
    assert "was not told to end, as the journal did not answer" in said["b"]


def test_what_an_instance_has_read_once_is_not_told_as_unchanged(place: Place) -> None:
    def read(id: str) -> None:
        if len(place.asks) == 1:
            place.unread.remove(id)

    place.asked = read
    assert "was to be cancelled in worker 0 of i" in late(place.cancel("a", wait=1.0))["a"]
    assert "nothing was changed" in late(place.cancel("a", wait=0.0))["a"]


def test_what_waited_by_then_is_told_though_nobody_could_be_asked(place: Place) -> None:
    place.waiting, place.away = {"a"}, True
    found = place.cancel("a", "b")
    assert (found.rows, list(late(found))) == ([{"id": "a"}], ["b"])


def test_it_is_an_error_as_long_as_nothing_was_asked(place: Place) -> None:
    def busy() -> None:
        raise JournalBusy("nothing was asked or changed")

    place.withdrawn = busy
    with pytest.raises(JournalBusy):
        place.cancel("a")


def test_an_ask_without_an_answer_may_have_been_taken(place: Place) -> None:
    place.away = True
    assert "was asked to end" in late(place.cancel("a"))["a"]


def test_the_chunk_is_named_where_the_instance_tells_it(place: Place) -> None:
    place.asked = place.end
    place.cancel("a")
    assert place.chunks == {None}
    place.ended.clear()
    place.cancel("a", chunk=7)
    assert place.chunks == {None, 7}


def test_no_ask_is_left_of_what_has_ended_otherwise(place: Place) -> None:
    """By itself, or where it waited by then; the others are still waited for."""

    def others_end(id: str) -> None:
        place.end("a", State.DONE, "ok")
        place.waiting = {"b"}
        if place.asks.count("c") == 2:
            assert place.unread == {"c"}
            place.end("c")

    place.asked = others_end
    found = place.cancel("a", "b", "c")
    assert [row["id"] for row in found.rows] == ["b", "c"]
    assert [one.reason for one in found.ended] == [
        "had ended before it could be cancelled: done/ok"
    ]
    assert (found.late, place.unread) == ([], set())


def test_whoever_cancels_second_is_told_who_was_first(place: Place) -> None:
    def end(id: str) -> None:
        place.end("mine")
        place.end("doubted", State.IN_DOUBT)
        place.end("bobs", reason="cancelled by bob: too slow")
        place.end("doubted-by-bob", State.IN_DOUBT, reason="cancelled by bob")
        place.end("waited", reason=None)

    place.asked = end
    found = place.cancel("mine", "doubted", "bobs", "doubted-by-bob", "waited")
    assert [row["id"] for row in found.rows] == ["mine", "doubted"]
    before = "was cancelled by somebody else before"
    assert [(one.id, one.state, one.reason) for one in found.ended] == [
        ("bobs", "cancelled", f"{before}: cancelled by bob: too slow"),
        ("doubted-by-bob", "in_doubt", f"{before} while it ran, and is in doubt: cancelled by bob"),
        ("waited", "cancelled", before),
    ]
    assert not place.unread, "no ask is left"


def test_what_has_ended_is_told_though_its_ask_cannot_be_taken_back(place: Place) -> None:
    def goes_away() -> None:
        place.away = bool(place.asks)

    place.asked = lambda _: place.end("a", State.DONE, "ok")
    place.withdrawn = goes_away
    found = place.cancel("a", "b")
    assert [one.id for one in found.ended] == ["a"]
    assert "was asked to end in worker 0 of i; then Redis did not answer" in late(found)["b"]
