"""Schedules: which ticks of a cron expression become requests, and what those requests are. Pure.

All that is decided is decided from what stands in the journal and from the database's clock, so it
makes no difference which instance decides it. A tick is named by its schedule and its time alone:
however often it is made, it is one request.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, NamedTuple, TypeAlias, get_args
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from feedback.contract.clock_changes import LARGEST_CHANGE, clock_changes, offset_at
from feedback.contract.headers import MAX_NAME, format_time
from feedback.contract.payloads import write_json

Missed: TypeAlias = Literal["latest", "all", "skip"]
"""What becomes of ticks that nobody made in time: the newest runs, all of them do, or none."""
MISSED: Final[tuple[str, ...]] = get_args(Missed)

ON_TIME: Final = timedelta(seconds=60)
"""A tick that is made so late at most is not missed."""
ABANDONED: Final = timedelta(seconds=60)
"""After so long without a look by who declared it so, an older declaration of a schedule holds."""
SEEN_EVERY: Final = timedelta(seconds=20)
"""How often who looks after a schedule says so."""
MOST_TICKS: Final = 100
"""Ticks that one look makes into requests."""
MOST_STEPS: Final = 5000
"""Ticks that one look goes through."""
_FIELDS: Final = 5
_SECOND: Final = timedelta(seconds=1)
SCHEDULE_HEADER: Final = "oncepool-schedule"
TICK_HEADER: Final = "oncepool-tick"
LONGEST_SCHEDULE_NAME: Final = MAX_NAME - len("@2026-11-22T05:00:00Z")
"""Characters; with the time behind it a name is a request id."""


class Schedule(NamedTuple):
    """A schedule as an app declares it."""

    name: str
    type: str
    """Of the requests that its ticks become."""
    cron: str
    """Minute, hour, day of month, month, day of week."""
    tz: str
    """Name of the time zone whose clocks it goes by."""
    missed: str = "latest"
    payload: bytes | None = None
    """JSON; None: the tick itself, `{"schedule": name, "at": time}`."""


class StoredSchedule(NamedTuple):
    """A schedule as the journal has it."""

    name: str
    type: str
    cron: str
    tz: str
    missed: str
    decided_until: datetime
    """What is due up to then has become a request or was skipped."""
    seen_at: datetime
    """When an instance that declares it so has last looked."""
    paused: bool
    known: Sequence[str] = ()
    """What it was ever declared as (`declaration`), in the order in which each came first."""


class TickRequest(NamedTuple):
    """A request that a schedule makes."""

    id: str
    type: str
    at: datetime
    payload: bytes
    headers: list[tuple[str, bytes | None]]


class Decision(NamedTuple):
    """What is to be done about a schedule now."""

    decided_until: datetime
    ticks: list[datetime]
    """They become requests."""
    skipped: int = 0
    """Ticks that do not, as they are too late."""
    declares: bool = False
    """It is to stand in the journal as this app declares it."""
    seen: bool = False
    """It is to be noted that somebody looks after it."""
    again_at: datetime | None = None
    """When to look again; None: nobody knows of anything."""

    @property
    def writes(self) -> bool:
        """Whether anything is to be written."""
        return bool(self.ticks or self.skipped or self.declares or self.seen)


def check_cron(cron: str, tz: str) -> None:
    """Raises ValueError, in words, for an expression or a time zone that mean nothing."""
    if len(str(cron).split()) != _FIELDS:
        raise ValueError(
            f"{cron!r} is no cron expression: five fields are minute, hour, day of month, month,"
            " day of week"
        )
    try:
        ZoneInfo(tz)
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise ValueError(f"there is no time zone {tz!r} here ({error})") from None
    try:
        found = next(ticks_after(cron, tz, datetime.now(UTC)), None)
    except CronSimError as error:
        raise ValueError(f"{cron!r} is no cron expression: {error}") from None
    if found is None:
        raise ValueError(f"{cron!r} is never due")


def ticks_after(cron: str, tz: str, start: datetime) -> Iterator[datetime]:
    """The times, in UTC, at which it is due after `start`, in their order.

    By the clocks of its time zone, as cron does it: what is due at a time of day that is left out
    when clocks are set forward is due right after that, and what is due at one that comes twice is
    due once; an expression that goes by the minute or the hour (`*`) goes on as real time does.
    """
    since = last = start.astimezone(UTC)
    once = not any(field.startswith("*") for field in cron.split()[:2])
    offset = offset_at(tz, since)
    local = _wall(since, offset)
    if once:  # not again what came before clocks were set back
        for change in clock_changes(tz, since - LARGEST_CHANGE, since):
            local = max(local, _wall(change.at, change.before) - _SECOND)
    while True:
        for due in CronSim(cron, local):
            at = (due - offset).replace(tzinfo=UTC)
            found = next(clock_changes(tz, since, at), None)
            if found is not None:
                break
            at = max(at, since)  # else of a time of day that was left out
            if at > last:
                yield at
                last = at
        else:
            return
        since, offset = found.at, found.after
        # From where the old clocks were, what is left out is due too and nothing comes again.
        local = _wall(since, found.before if once else found.after) - _SECOND


def _wall(at: datetime, offset: timedelta) -> datetime:
    return at.replace(tzinfo=None) + offset


def decide(
    mine: Schedule, found: StoredSchedule | None, now: datetime, *, watched: timedelta
) -> Decision:
    """What to do about a schedule that this app declares, and the journal has as `found`.

    Of several declarations the one that came last for the first time holds, until nobody who
    declares it so has looked for `ABANDONED`. That is for who has looked so long himself to say:
    `watched` is for how long he has, without a break. Ticks before the first instance with a
    changed declaration are not its own and never due.
    """
    if found is None:
        return _coming(mine, Decision(now, [], declares=True))
    until, on_time = found.decided_until, ON_TIME
    declares = declaration(mine) != declaration(found)
    if declares:
        if not _newer(mine, found):
            if min(watched, now - found.seen_at) < ABANDONED:
                return Decision(until, [])  # instances of a newer version look after it
            on_time += ABANDONED  # so long it was left to others, though somebody was there
        if (mine.cron, mine.tz) != (found.cron, found.tz):
            first = declaration(mine) not in found.known
            until = max(until, now if first else found.seen_at)
    plain = Decision(until, [], declares=declares, seen=now - found.seen_at >= SEEN_EVERY)
    return plain if found.paused else _due(mine, now, plain, on_time)


def declaration(schedule: Schedule | StoredSchedule) -> str:
    """What tells a version's declaration of a schedule from another's."""
    return write_json([schedule.type, schedule.cron, schedule.tz, schedule.missed]).decode()


def tick_id(name: str, at: datetime) -> str:
    """The id of a tick's request: `report.daily@2026-11-22T05:00:00Z`."""
    return f"{name}@{format_time(at).decode()}"


def tick_of(schedule: Schedule, at: datetime) -> TickRequest:
    """The request that a schedule's tick at this time is."""
    time = format_time(at)
    payload = schedule.payload
    if payload is None:
        payload = write_json({"schedule": schedule.name, "at": time.decode()})
    headers: list[tuple[str, bytes | None]] = [
        ("ce_time", time), (SCHEDULE_HEADER, schedule.name.encode()), (TICK_HEADER, time),
    ]  # fmt: skip
    return TickRequest(tick_id(schedule.name, at), schedule.type, at, payload, headers)


def _newer(mine: Schedule, found: StoredSchedule) -> bool:
    """Whether nobody has declared it so before it was first declared as it is found."""
    known = list(found.known)
    ours, theirs = declaration(mine), declaration(found)
    return ours not in known or (theirs in known and known.index(ours) > known.index(theirs))


def _due(schedule: Schedule, now: datetime, plain: Decision, on_time_for: timedelta) -> Decision:
    """What is due after `plain.decided_until`; in time is what is so late at most.

    Where that is still to come, a clock was set back: nothing is due before it comes again, since
    what was due until then has been made.
    """
    on_time: list[datetime] = []
    late: list[datetime] = []
    until, again, more = plain.decided_until, None, False
    for steps, at in enumerate(ticks_after(schedule.cron, schedule.tz, until)):
        if at > now:
            again = at
            break
        kept = len(on_time) + (len(late) if schedule.missed == "all" else 0)
        if steps == MOST_STEPS or kept == MOST_TICKS:
            again, more = now, True
            break
        (on_time if now - at <= on_time_for else late).append(at)
        until = at
    made = on_time
    if schedule.missed == "all":
        made = late + on_time
    elif schedule.missed == "latest" and late and not on_time and not more:
        made = late[-1:]
    skipped = len(late) + len(on_time) - len(made)
    return plain._replace(decided_until=until, ticks=made, skipped=skipped, again_at=again)


def _coming(schedule: Schedule, decision: Decision) -> Decision:
    first = next(ticks_after(schedule.cron, schedule.tz, decision.decided_until), None)
    return decision._replace(again_at=first)
