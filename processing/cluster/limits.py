"""Limits that hold while instances run: where they are kept, and what may stand there.

One Redis hash, `<prefix>:limits`, one field per figure, so that two operators who set different
ones never undo each other: `workers`, `workers_total`, and for each type `total:<type>`,
`instance:<type>` and `paused:<type>`. A field that is not there, or says `none`, limits nothing.
Beside each stands when it was changed last, in `at:<field>`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, Literal, NamedTuple

import redis

from feedback.backoff import Backoff
from feedback.contract.headers import check_name
from feedback.errors import InvalidLimit, LimitsUnclear, Malformed, StoreUnavailable

MOST: Final = 1_000_000
"""No limit is above it: beyond, it is a slip of the keyboard."""
MOST_WORKERS: Final = 1024
"""As the configuration has it."""

_AT: Final = "at:"
"""Before a figure's name: the field that says when it was changed last, in microseconds by the
clock of Redis. Where that is older than what was seen before, Redis has lost data."""
_GONE: Final = "none"
"""What a figure says that was taken away, and stays: perhaps Redis has lost its data, and an
instance is about to put back what it had."""
_CHANGE: Final = f"""\
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
for i = 1, #ARGV, 2 do
    local at = '{_AT}' .. ARGV[i]
    local before = tonumber(redis.call('hget', KEYS[1], at) or '0') or 0
    local changed = string.format('%.0f', math.max(now, before + 1))
    redis.call('hset', KEYS[1], ARGV[i], ARGV[i + 1], at, changed)
end
"""
_RESTORE: Final = f"""\
local put = {{}}
for i = 1, #ARGV, 3 do
    local at = '{_AT}' .. ARGV[i]
    if (tonumber(redis.call('hget', KEYS[1], at) or '0') or 0) < tonumber(ARGV[i + 2]) then
        redis.call('hset', KEYS[1], ARGV[i], ARGV[i + 1], at, ARGV[i + 2])
        put[#put + 1] = ARGV[i]
    end
end
return put
"""

LOOK: Final = 2.0
"""Seconds in which a change is looked for whose answer was lost."""

Figure = Literal["workers", "workers_total", "total", "instance", "paused"]
_OF_ALL: Final = ("workers", "workers_total")
_OF_TYPE: Final = ("total", "instance", "paused")


class Setting(NamedTuple):
    """What one figure limits."""

    figure: Figure
    type: str | None = None
    """Of `total`, `instance` and `paused`."""

    @property
    def field(self) -> str:
        """Its name in the hash."""
        return self.figure if self.type is None else f"{self.figure}:{self.type}"


Changes = Mapping[Setting, int | None]
"""Setting -> its figure, or None to take it away; `paused` is 1."""


@dataclass(frozen=True, slots=True)
class TypeLimit:
    """Requests of one type."""

    total: int | None = None
    """Most at once over all instances."""
    instance: int | None = None
    """Most at once in one instance, instead of the handler's `max_at_once`."""
    paused: bool = False
    """None is started."""


@dataclass(frozen=True, slots=True)
class ClusterLimits:
    """All limits in force. None: the configuration's own."""

    workers: int | None = None
    """Worker processes of each instance."""
    workers_total: int | None = None
    """Worker processes of all instances together, shared out."""
    types: Mapping[str, TypeLimit] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict, compare=False)
    """All figures as they stand in the hash."""
    changed: Mapping[str, int] = field(default_factory=dict, compare=False)
    """When these fields were changed last, also those taken away: microseconds since the epoch."""
    unread: tuple[str, ...] = ()
    """Unreadable fields, which limit nothing."""

    def lacks(self, held: ClusterLimits) -> bool:
        """Whether Redis has lost a change that it `held` before: it is gone, or an older stands."""
        return any(self.changed.get(name, 0) < at for name, at in held.changed.items())


class RedisLimitsStore:
    """The hash `<prefix>:limits`. How long a call may take is the client's matter."""

    def __init__(self, client: redis.Redis, prefix: str) -> None:
        self._client = client
        self._key = f"{prefix}:limits"

    def read(self) -> ClusterLimits:
        """What stands. Raises StoreUnavailable."""
        with _explained():
            found: Any = self._client.hgetall(self._key)
            return parse((_text(name), _text(value)) for name, value in found.items())

    def change(self, changes: Changes) -> None:
        """Sets and takes away, all or nothing; where the answer is lost, looks whether it landed.

        Raises InvalidLimit, StoreUnavailable; LimitsUnclear where it may have landed, or may yet.
        """
        check(changes)
        wanted = {s.field: _GONE if n is None else str(n) for s, n in changes.items()}
        with _explained():
            self._client.ping()  # what fails from here on may have been heard
        try:
            self._eval(_CHANGE, *chain.from_iterable(wanted.items()))
        except StoreUnavailable as error:
            if isinstance(error.__cause__, redis.ResponseError):
                raise
            if not self._shows(wanted, error):
                raise LimitsUnclear(str(error), shown=False) from error

    def _shows(self, wanted: Mapping[str, str], lost: StoreUnavailable) -> bool:
        """Whether a change is there whose answer was lost. Raises LimitsUnclear."""
        pauses, end = Backoff(0.05, 0.5), time.monotonic() + LOOK
        while True:
            try:
                found = self.read().fields
            except StoreUnavailable:
                if time.monotonic() > end:
                    raise LimitsUnclear(str(lost), shown=None) from lost
                time.sleep(pauses.next())
            else:
                return wanted.items() <= found.items()

    def restore(self, lost: ClusterLimits) -> list[str]:
        """Puts back each figure whose change was lost; one that was changed since stays.

        Those that were put, as "field=figure", or "field=none" for one taken away; nothing where
        others have put them back already. Whoever has seen the latest change of a figure prevails.
        Raises StoreUnavailable.
        """
        figures = {name: lost.fields.get(name, _GONE) for name in lost.changed}
        flat = chain.from_iterable((name, figures[name], at) for name, at in lost.changed.items())
        return [f"{name}={figures[name]}" for name in map(_text, self._eval(_RESTORE, *flat))]

    def _eval(self, script: str, *arguments: Any) -> Any:
        with _explained():
            return self._client.eval(script, 1, self._key, *arguments)


def check(changes: Changes) -> None:
    """Raises InvalidLimit for the first change that may not stand."""
    for setting, figure in changes.items():
        wanted = _OF_ALL if setting.type is None else _OF_TYPE
        if setting.figure not in wanted:
            raise InvalidLimit(
                f"{setting.figure!r} limits no {_kind(setting)}: {', '.join(wanted)}"
            )
        if setting.type is not None:
            try:
                check_name("type", setting.type)
            except Malformed as error:
                raise InvalidLimit(str(error)) from None
        if figure is not None:
            if "*" in (setting.type or ""):
                raise InvalidLimit(
                    f"a limit is for one type: {setting.type!r} is none, name each by itself"
                )
            _check_figure(setting, figure)


def _check_figure(setting: Setting, figure: int) -> None:
    if type(figure) is not int or not 1 <= figure <= most_of(setting.figure):
        hint = "; to run none of a type, pause it" if setting.type is not None else ""
        raise InvalidLimit(
            f"{setting.figure}={figure!r}: a whole number from 1 to {most_of(setting.figure)}{hint}"
        )


def most_of(figure: Figure) -> int:
    """The largest that it may be."""
    if figure == "paused":
        return 1
    return MOST_WORKERS if figure == "workers" else MOST


def _kind(setting: Setting) -> str:
    return "instance as a whole" if setting.type is None else "type"


def parse(fields: Iterable[tuple[str, str]]) -> ClusterLimits:
    """What the hash says. A field that can't be understood is named and left out."""
    of_all: dict[str, int] = {}
    of_types: dict[str, dict[str, int]] = {}
    unread: list[str] = []
    given: dict[str, str] = {}
    changed: dict[str, int] = {}
    for name, value in fields:
        if not name.startswith(_AT):
            given[name] = value
        elif value.isdecimal():
            changed[name.removeprefix(_AT)] = int(value)
    for name, value in sorted(given.items()):
        figure, colon, kind = name.partition(":")
        setting = Setting(figure, kind if colon else None)  # type: ignore[arg-type]
        if value == _GONE:
            continue
        try:
            number = int(value)
            check({setting: number})
        except (ValueError, InvalidLimit):
            unread.append(name)
            continue
        if setting.type is None:
            of_all[figure] = number
        else:
            of_types.setdefault(kind, {})[figure] = number
    types = {
        kind: TypeLimit(found.get("total"), found.get("instance"), "paused" in found)
        for kind, found in of_types.items()
    }
    return ClusterLimits(
        workers=of_all.get("workers"),
        workers_total=of_all.get("workers_total"),
        types=types,
        fields=given,
        changed=changed,
        unread=tuple(unread),
    )


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except (redis.RedisError, OSError) as error:
        raise StoreUnavailable(f"Redis is not available: {error}") from error
