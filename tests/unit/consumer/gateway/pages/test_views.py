from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from consumer.admin.overview import Look
from consumer.gateway.pages import payload_view, plots, snapshots
from consumer.gateway.pages.advice import notices
from consumer.gateway.pages.payload_view import MOST, PayloadView, differing
from consumer.gateway.pages.snapshots import LONGEST, Kept, Snapshot
from consumer.gateway.pages.words import age, count, figure, trace_id, when
from feedback.errors import StoreUnavailable
from tests.support.pages import FakeServices, instance


@pytest.mark.parametrize(
    "seconds,said",
    [(None, "-"), (0, "0 ms"), (0.25, "250 ms"), (3.21, "3.2 s"), (59, "59 s"), (60, "1 min"),
     (3700, "1 h 1 min"), (3600 * 24, "1 d"), (90_061, "1 d 1 h")],
)  # fmt: skip
def test_ages(seconds: float | None, said: str) -> None:
    assert age(seconds) == said


def test_figures_and_times() -> None:
    assert (count(1234567), count(None), figure(0.1234), figure(1234.5)) == (
        "1,234,567", "-", "0.123", "1,234",
    )  # fmt: skip
    assert when("2026-05-01T14:00:00+02:00") == "2026-05-01 12:00:00"
    assert when("no time") == when(None) == "-"


@pytest.mark.parametrize("text", ["", "00-x-y-01", f"00-{'0' * 32}-b7ad6b7169203331-01"])
def test_what_is_no_trace_context_leads_nowhere(text: str) -> None:
    assert trace_id(text) == ""


def test_what_an_error_advises_is_not_said_twice() -> None:
    of_error = "Redis: refused; correct redis_url or start Redis; requests run on"
    [twice] = notices(Look(problems={"instances": of_error}))
    [once] = notices(Look(problems={"instances": "no answer within 2 s"}))
    assert (twice.advice, once.advice) == ("", "Correct redis_url or start Redis; requests run on.")


def test_secret_fields_are_hidden_wherever_they_stand() -> None:
    view = PayloadView(["password", "card"])
    shown = view.payload(b'{"a": [{"Password": {"deep": "x1"}}], "n": 123456789012345678901234}')
    assert "x1" not in shown.text
    assert "123456789012345678901234" in shown.text
    assert shown.note == "hidden: Password"
    # What is no JSON can't be taken apart: all of it is hidden where it speaks of such a field.
    assert view.payload(b"card=4111&x=1").text == ""
    assert view.payload('{"Card": "4111"}'.encode("utf-16")).text == ""
    assert view.payload(b'{"name": "M\xfcller", "card": "4111"}') == (
        "", "hidden: it is no JSON, and speaks of card",
    )  # fmt: skip
    assert view.payload(b"x=1") == ("x=1", "no JSON")
    assert view.payload(b"\xff\x00").text == "ff 00"
    assert view.payload(None).note == "not kept"
    assert "no JSON" in view.payload(b"[" * 100_000).note
    long = view.payload(b'"' + b"x" * 2 * MOST + b'"')
    assert (len(long.text), "the first" in long.note) == (MOST, True)
    assert view.headers([("ce_card", b"4111"), ("a", b"\xff"), ("b", None)]) == [
        ("ce_card", "•••"), ("a", "\\xff"), ("b", ""),
    ]  # fmt: skip


def test_headers_are_shown_as_far_as_the_characters_go() -> None:
    view = PayloadView(["card"], most=1000)
    shown = view.headers([("", b"")] * 99_990)
    assert len(shown) < 100
    assert shown[-1] == ("…", f"{99_990 - len(shown) + 1} more")
    assert view.headers([("a", bytes(5000)), ("card", b"4111")])[0][1] == "\0" * 1000


def test_lines_that_differ() -> None:
    assert differing("a\nb\nc", "a\nx\nc\nd") == ({1}, {1, 3})


def test_no_more_is_formatted_than_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    formatted: list[int] = []
    dumps = json.dumps

    def counted(value: Any, **options: Any) -> str:
        text = dumps(value, **options)
        formatted.append(len(text))
        return text

    monkeypatch.setattr(payload_view.json, "dumps", counted)
    view = PayloadView(["card"])
    deep: Any = [7] * 50_000
    for _ in range(80):
        deep = [deep]
    for value in ([1] * 500_000, {str(n): n for n in range(300_000)}, deep, ["x" * 10**6] * 3):
        shown = view.value(value)
        assert (len(shown.text), "the first" in shown.note) == (MOST, True)
    assert max(formatted) < 4 * MOST
    cut = view.value({"a": ["x" * (MOST - 20)], "card": 1})
    assert cut.note == f"hidden: card; the first {MOST} characters"
    # As long as the page takes it, all is shown.
    assert view.value([[1]] * 4_000).note == ""


def test_a_plot_stays_in_its_box_and_keeps_gaps() -> None:
    window = (0, 600, 60)
    rows = [{"at": at, "type": f"t{n}", "done": n, "other": None}
            for at in (0, 60, 600) for n in range(8)]  # fmt: skip
    series = plots.throughput(rows, window)
    assert [one.name for one in series] == ["t7", "t6", "t5", "t4", plots.OTHERS]
    assert sum(one.values[60] for one in series) == pytest.approx(sum(range(8)) / 60)
    assert series[0].values[120] == 0
    made = plots.plot("Ended", series, window, figure)
    for line in made.lines:
        for part in line.parts:
            for point in part.split():
                x, y = map(float, point.split(","))
                assert 0 <= x <= made.width
                assert 0 <= y <= made.height
    known = plots.times(
        [{"at": at, "type": "t", "n": 3, "wait": [0.1, 2.0]} for at in (0, 60, 300)], "wait"
    )
    assert [(one.name, one.dashed) for one in known] == [("t p50", False), ("t p95", True)]
    assert [len(line.parts) for line in plots.plot("Wait", known, window, age).lines] == [2, 2]
    assert "nothing to show" in plots.plot("Wait", [], window, age).said


def test_what_is_wrong_is_told_with_what_to_do() -> None:
    look = FakeServices().found
    look.instances = [
        instance(workers_free=0), instance("late", age=60.0), instance("out", joined=False),
        instance("full", paused=["max_in_hand"], workers_free=0), instance("end", stopping=True),
    ]  # fmt: skip
    look.problems["topics"] = "no broker answers"
    said = notices(look)
    text = "\n".join(f"{one.grade} {one.what} {one.advice}" for one in said)
    for part in ("late was last heard of 1 min ago", "out is not in the consumer group",
                 "full takes no new requests: max_in_hand", "end is stopping", "3 dead requests",
                 "2 requests in doubt", "1 message that", "a.b: due for 1 min 15 s and not run",
                 "1 lost at commit", "a.b is paused", "4 of a.b are unanswered",
                 "no broker answers"):  # fmt: skip
        assert part in text, part
    assert all(one.advice for one in said)
    assert [one.grade for one in said] == sorted((one.grade for one in said), reverse=True)
    assert [one.what for one in notices(Look(instances=[]))] == [
        "No instance is registered: nothing runs"
    ]
    assert notices(Look()) == []


def test_an_answer_is_kept_and_an_old_one_is_better_than_none() -> None:
    asked: list[int] = []
    now = 0.0

    async def ask() -> int:
        asked.append(len(asked))
        if len(asked) == 2:
            raise StoreUnavailable("redis://u:secret@h is away")
        return len(asked)

    async def scenario() -> None:
        nonlocal now
        kept = Kept(ask, 5.0, lambda: now)
        looks = await asyncio.gather(*(kept.look() for _ in range(20)))
        assert {look.value for look in looks} == {1}
        assert len(asked) == 1
        now = 6.0
        away = await kept.look()
        assert (away.value, "secret" in away.problem, bool(away.problem)) == (1, False, True)
        assert away.at is not None
        assert away.at <= datetime.now(UTC)
        kept.forget()
        assert (await kept.look()).value == 3

    asyncio.run(scenario())


def test_what_can_not_be_found_out_is_no_question_for_ever() -> None:
    async def ask() -> int:
        raise KeyError("at")

    assert asyncio.run(Kept(ask, 5.0).look()) == Snapshot(None, None, "'at'")


def test_what_nobody_has_looked_at_for_long_is_as_unknown_as_at_the_first_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As figures of minutes ago would stand under a line that says how long they are kept."""
    now, asked = 0.0, 0
    monkeypatch.setattr(snapshots, "FIRST_WAIT", 3600.0)

    async def scenario() -> None:
        nonlocal now
        answer = asyncio.Event()

        async def ask() -> int:
            nonlocal asked
            asked += 1
            if asked == 2:
                await answer.wait()
            if asked > 2:
                raise StoreUnavailable("away")
            return asked

        kept = Kept(ask, 10.0, lambda: now)
        assert (await kept.look()).value == 1
        now = LONGEST - 1.0
        assert (await kept.look()).value == 1, "an old one, while the next is asked for"
        now = LONGEST
        monkeypatch.setattr(snapshots, "FIRST_WAIT", 0.0)
        assert await kept.look() == Snapshot(None, None, "not known yet: it is being asked")
        monkeypatch.setattr(snapshots, "FIRST_WAIT", 3600.0)
        asyncio.get_running_loop().call_later(2 * snapshots.NEXT_WAIT, answer.set)
        assert (await kept.look()).value == 2, "as long as for the first"
        now += 2 * LONGEST
        assert await kept.look() == Snapshot(None, None, "away")

    asyncio.run(scenario())
