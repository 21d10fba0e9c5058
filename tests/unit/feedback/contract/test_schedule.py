"""Which ticks of a schedule become requests: by the clocks of its zone, and whatever clocks do."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from feedback.contract.payloads import parse_json
from feedback.contract.schedule import (
    MOST_STEPS,
    MOST_TICKS,
    Decision,
    Schedule,
    StoredSchedule,
    check_cron,
    decide,
    declaration,
    tick_of,
    ticks_after,
)

OSLO = "Europe/Oslo"
NOW = datetime(2026, 11, 23, 5, 0, 5, tzinfo=UTC)  # a Monday, 06:00:05 in Oslo
EXPRESSIONS = [
    "30 2 * * *", "0,30 1-3 * * *", "*/20 * * * *", "15 * * * *", "5 2 * * 0",
    "15 */2 * * *", "0 */2 * * *", "* 2 * * *", "*/10 23 * * *", "5,35 0-4/2 * * *", "0 0 * * *",
]  # fmt: skip
CHANGES = [
    (OSLO, "2026-03-29"), (OSLO, "2026-10-25"),
    ("America/New_York", "2026-03-08"), ("America/New_York", "2026-11-01"),
    ("Africa/Cairo", "2026-04-23"), ("Africa/Cairo", "2026-10-29"),  # at midnight
    ("Antarctica/Troll", "2026-03-29"), ("Antarctica/Troll", "2026-10-25"),  # by two hours
    ("Australia/Lord_Howe", "2026-04-04"), ("Australia/Lord_Howe", "2026-10-03"),  # by half an hour
    ("America/Caracas", "2007-12-09"), ("America/Caracas", "2016-05-01"),
    ("Asia/Pyongyang", "2015-08-14"), ("Asia/Pyongyang", "2018-05-04"),
    ("Asia/Kathmandu", "1985-12-31"),  # by a quarter
    ("Pacific/Apia", "2011-12-30"),  # by a day
    ("UTC", "2026-03-29"),
]  # fmt: skip
"""Days, in UTC, on which clocks are set somewhere."""
DAILY = Schedule("report", "report.make", "0 6 * * mon-fri", OSLO)


def ticks(cron: str, start: str, n: int, tz: str = OSLO) -> list[str]:
    found = itertools.islice(ticks_after(cron, tz, datetime.fromisoformat(start)), n)
    return [at.strftime("%d %H:%M") for at in found]


def minute_by_minute(cron: str, tz: str, start: datetime, end: datetime) -> list[datetime]:
    """What is due after the one time and up to the other, found out by looking at the clock."""
    fields, zone = CronSim(cron, start), ZoneInfo(tz)
    once = not any(field.startswith("*") for field in cron.split()[:2])

    def fits(wall: datetime) -> bool:
        hit = wall.minute in fields.minutes and wall.hour in fields.hours
        return hit and fields.match_day(wall.date())

    due: list[datetime] = []
    at, before = start, start.astimezone(zone)
    while at < end:
        at += timedelta(minutes=1)
        wall = at.astimezone(zone)
        step = wall.replace(tzinfo=None) - before.replace(tzinfo=None)
        left_out = [
            before.replace(tzinfo=None) + timedelta(minutes=n)
            for n in range(1, step // timedelta(minutes=1))
        ]
        if (fits(wall) and not (once and wall.fold)) or (once and any(map(fits, left_out))):
            due.append(at)
        before = wall
    return due


def stored(mine: Schedule = DAILY, **changes: Any) -> StoredSchedule:
    row = StoredSchedule(
        mine.name, mine.type, mine.cron, mine.tz, mine.missed,
        decided_until=NOW - timedelta(hours=1), seen_at=NOW - timedelta(seconds=5), paused=False,
    )  # fmt: skip
    return row._replace(**changes)


def look(
    mine: Schedule = DAILY, found: StoredSchedule | None = None, now: datetime = NOW, **more: Any
) -> Decision:
    return decide(mine, found or stored(mine), now, **{"watched": timedelta(), **more})


def minutely(missed: str) -> Schedule:
    return Schedule("m", "m", "* * * * *", "UTC", missed)


class TestClocksOfTheZone:
    def test_a_time_of_day_stays_where_it_is_when_clocks_are_set(self) -> None:
        assert ticks("0 6 * * mon-fri", "2026-10-23T00:00Z", 3) == [
            "23 04:00",
            "26 05:00",
            "27 05:00",
        ]

    def test_what_is_due_in_the_hour_that_is_left_out_is_due_right_after_it(self) -> None:
        assert ticks("30 2 * * *", "2026-03-28T00:00Z", 3) == ["28 01:30", "29 01:00", "30 00:30"]

    def test_what_is_due_in_the_hour_that_comes_twice_is_due_once(self) -> None:
        assert ticks("30 2 * * *", "2026-10-24T12:00Z", 2) == ["25 00:30", "26 01:30"]
        # Also for who looks between the two: the first of them was it.
        assert ticks("30 2 * * *", "2026-10-25T01:10Z", 1) == ["26 01:30"]

    def test_what_goes_by_the_minute_goes_on_as_time_does(self) -> None:
        assert ticks("*/30 * * * *", "2026-10-25T00:00Z", 5) == [
            "25 00:30", "25 01:00", "25 01:30", "25 02:00", "25 02:30",
        ]  # fmt: skip
        assert ticks("*/30 * * * *", "2026-03-29T00:00Z", 4) == [
            "29 00:30", "29 01:00", "29 01:30", "29 02:00",
        ]  # fmt: skip

    def test_clocks_that_are_set_back_by_half_an_hour_lose_nothing(self) -> None:
        """At 15:00 it is 02:00 there, for half an hour once more 01:30."""
        zone = "Australia/Lord_Howe"
        assert ticks("15 */2 * * *", "2026-04-04T12:00Z", 3, zone) == [
            "04 13:15", "04 15:45", "04 17:45",
        ]  # fmt: skip
        assert ticks("0 */2 * * *", "2026-04-04T14:00Z", 2, zone) == ["04 15:30", "04 17:30"]
        assert len(set(ticks("* 2 * * *", "2026-04-04T14:00Z", 60, zone))) == 60
        assert ticks("* 2 * * *", "2026-04-04T14:00Z", 60, zone)[-1] == "04 16:29"
        assert ticks("45 1 * * *", "2026-04-04T14:00Z", 2, zone) == ["04 14:45", "05 15:15"]

    @given(
        st.sampled_from(EXPRESSIONS),
        st.sampled_from(CHANGES),
        st.lists(st.integers(1, 36 * 3600), min_size=1, max_size=12),
    )
    def test_it_makes_no_difference_who_looks_when(
        self, cron: str, change: tuple[str, str], looks: list[int]
    ) -> None:
        tz, day = change
        start = datetime.fromisoformat(f"{day}T00:00Z") - timedelta(hours=14)
        end = start + timedelta(hours=52)
        whole = list(itertools.takewhile(lambda at: at <= end, ticks_after(cron, tz, start)))
        parts: list[datetime] = []
        last = start
        for seconds in [*sorted(looks), 52 * 3600]:
            until = start + timedelta(seconds=seconds)
            for at in itertools.takewhile(lambda at, u=until: at <= u, ticks_after(cron, tz, last)):
                parts.append(at)
                last = at
            last = max(last, until)
        assert parts == whole
        assert whole == minute_by_minute(cron, tz, start, end)


class TestDecisions:
    def test_what_is_due_becomes_one_request_and_the_next_time_is_known(self) -> None:
        decision = look()
        assert decision.ticks == [datetime(2026, 11, 23, 5, tzinfo=UTC)]
        assert decision.decided_until == decision.ticks[0]
        assert decision.again_at == datetime(2026, 11, 24, 5, tzinfo=UTC)
        again = look(found=stored(decided_until=decision.decided_until))
        assert not again.writes

    def test_a_new_schedule_has_no_past(self) -> None:
        decision = decide(DAILY, None, NOW, watched=timedelta())
        assert (decision.declares, decision.ticks) == (True, [])
        assert decision.decided_until == NOW
        assert decision.again_at == datetime(2026, 11, 24, 5, tzinfo=UTC)

    @pytest.mark.parametrize(
        "missed, made, skipped", [("latest", [4], 4), ("all", [0, 1, 2, 3, 4], 0), ("skip", [], 5)]
    )
    def test_what_nobody_was_there_for_is_made_up_for_as_declared(
        self, missed: str, made: list[int], skipped: int
    ) -> None:
        mine = Schedule("h", "h", "0 * * * *", "UTC", missed)
        first = datetime(2026, 11, 23, 1, tzinfo=UTC)
        now = first + timedelta(hours=4, minutes=30)
        decision = look(mine, stored(mine, decided_until=first - timedelta(minutes=1)), now)
        assert decision.ticks == [first + timedelta(hours=n) for n in made]
        assert (decision.skipped, decision.decided_until) == (skipped, first + timedelta(hours=4))

    @pytest.mark.parametrize("missed", ["latest", "skip"])
    def test_what_is_in_time_runs_and_what_is_older_than_it_does_not(self, missed: str) -> None:
        decision = look(minutely(missed), stored(minutely(missed)), NOW)
        assert decision.ticks == [NOW.replace(second=0)]
        assert decision.skipped == 59

    @pytest.mark.parametrize("missed", ["latest", "skip", "all"])
    def test_a_long_absence_is_gone_through_in_parts(self, missed: str) -> None:
        mine, now = minutely(missed), NOW + timedelta(seconds=53)  # 58 s past a minute
        until, made, looks = NOW - timedelta(days=9), [], 0
        while looks < 1000:
            decision = look(mine, stored(mine, decided_until=until), now)
            assert len(decision.ticks) <= MOST_TICKS
            until, looks = decision.decided_until, looks + 1
            made += decision.ticks
            if decision.again_at != now:
                break
        assert made[-1] == NOW.replace(second=0)
        assert len(made) == (9 * 24 * 60 if missed == "all" else 1)
        assert looks > 9 * 24 * 60 // MOST_STEPS

    def test_a_clock_that_was_set_back_makes_nothing_twice(self) -> None:
        ahead = stored(decided_until=NOW + timedelta(days=1))
        decision = look(found=ahead)
        assert (decision.ticks, decision.decided_until) == ([], ahead.decided_until)
        assert decision.again_at == datetime(2026, 11, 25, 5, tzinfo=UTC)

    @given(
        st.lists(st.integers(-7200, 7200), max_size=40), st.sampled_from(["latest", "all", "skip"])
    )
    def test_whatever_clocks_do_no_tick_is_made_twice(self, steps: list[int], missed: str) -> None:
        mine, now, until, made = minutely(missed), NOW, NOW, []
        for step in steps:
            now += timedelta(seconds=step)
            decision = look(mine, stored(mine, decided_until=until, seen_at=now), now)
            assert all(at <= now for at in decision.ticks)
            made += decision.ticks
            until = decision.decided_until
        assert sorted(set(made)) == made

    def test_a_pause_makes_nothing(self) -> None:
        assert not look(found=stored(paused=True)).writes


class TestVersions:
    OLD, NEW = DAILY, DAILY._replace(cron="0 4 * * *")
    LONG = timedelta(hours=1)

    def found(self, mine: Schedule, **changes: Any) -> StoredSchedule:
        """Both have been declared."""
        return stored(mine, known=[declaration(self.OLD), declaration(self.NEW)], **changes)

    def test_what_nobody_has_declared_before_holds_from_now_on(self) -> None:
        decision = look(self.NEW, stored(self.OLD, known=[declaration(self.OLD)]))
        assert (decision.declares, decision.ticks, decision.decided_until) == (True, [], NOW)

    def test_instances_of_an_older_version_leave_it_to_those_of_the_newer(self) -> None:
        """Also one that has just started: it may be a process that was replaced."""
        assert not look(self.OLD, self.found(self.NEW), watched=self.LONG).writes

    @pytest.mark.parametrize("watched, back", [(0, False), (59, False), (60, True)])
    def test_they_take_it_back_when_they_have_seen_long_enough_that_those_are_gone(
        self, watched: int, back: bool
    ) -> None:
        gone = self.found(self.NEW, seen_at=NOW - timedelta(minutes=2))
        decision = look(self.OLD, gone, watched=timedelta(seconds=watched))
        assert decision.declares == back
        assert decision.ticks == [datetime(2026, 11, 23, 5, tzinfo=UTC)] * back

    def test_those_of_the_newer_one_take_it_back_at_once_with_what_was_due_since(self) -> None:
        due = datetime(2026, 11, 23, 3, tzinfo=UTC)
        before = due - timedelta(seconds=5)
        seen = self.found(self.OLD, seen_at=before, decided_until=before - timedelta(hours=1))
        decision = look(self.NEW, seen, due + timedelta(seconds=5))
        assert (decision.declares, decision.ticks) == (True, [due])

    @pytest.mark.parametrize("late", [70, 115])
    def test_a_tick_that_was_left_to_those_that_are_gone_is_not_missed(self, late: int) -> None:
        mine = self.OLD._replace(missed="skip")
        due = datetime(2026, 11, 23, 5, tzinfo=UTC)
        known = [declaration(mine), declaration(self.NEW)]
        gone = stored(self.NEW, known=known, seen_at=due - timedelta(seconds=1))
        decision = look(mine, gone, due + timedelta(seconds=late), watched=self.LONG)
        assert (decision.ticks, decision.skipped) == ([due], 0)

    def test_what_only_the_policy_changes_loses_no_tick(self) -> None:
        decision = look(DAILY._replace(missed="all"), stored())
        assert decision.declares
        assert len(decision.ticks) == 1


class TestRequests:
    def test_its_id_is_made_of_schedule_and_time_alone(self) -> None:
        at = datetime(2026, 11, 23, 5, tzinfo=UTC)
        tick = tick_of(DAILY, at)
        assert (tick.id, tick.type) == ("report@2026-11-23T05:00:00Z", "report.make")
        assert parse_json(tick.payload) == {"schedule": "report", "at": "2026-11-23T05:00:00Z"}
        assert dict(tick.headers)["oncepool-tick"] == b"2026-11-23T05:00:00Z"
        assert tick_of(DAILY._replace(payload=b"7"), at).payload == b"7"

    @pytest.mark.parametrize(
        "cron, tz, said",
        [
            ("0 6 * *", "UTC", "five fields"),
            ("0 0 6 * * *", "UTC", "five fields"),
            ("61 6 * * *", "UTC", "Bad minute"),
            ("0 6 31 2 *", "UTC", "Bad day-of-month"),
            ("0 6 * * *", "Europe/Olso", "no time zone 'Europe/Olso'"),
            ("0 6 * * *", "../passwd", "no time zone"),
        ],
    )
    def test_what_means_nothing_is_told(self, cron: str, tz: str, said: str) -> None:
        with pytest.raises(ValueError, match=said):
            check_cron(cron, tz)
