"""Limits that hold while instances run: where they are kept, and what may stand there.

One Redis hash, `<prefix>:limits`, one field per figure, so that two operators who set different
ones never undo each other: `workers`, `workers_total`, and for each type `total:<type>`,
`instance:<type>` and `paused:<type>`. A field that is not there, or says `none`, limits nothing.
"""

from __future__ import annotations

import secrets
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

REVISION: Final = "revision"
"""A field that limits nothing and that stays: it begins with a number of the hash's own, and grows
with each change. Without it, with another beginning or below what it was, Redis has lost data."""
_AGES: Final = 1_000_000
"""Changes of one hash for which there is room behind the number that it began with."""
_GONE: Final = "none"
"""What a figure says that was taken away, and stays: perhaps Redis has lost its data, and an
instance is about to put back what it had."""
_CHANGE: Final = f"""\
local fresh = redis.call('exists', KEYS[1]) == 0
for i = 2, #ARGV, 2 do redis.call('hset', KEYS[1], ARGV[i], ARGV[i + 1]) end
if fresh then redis.call('hset', KEYS[1], '{REVISION}', ARGV[1]) end
redis.call('hincrby', KEYS[1], '{REVISION}', 1)
"""
_RESTORE: Final = f"""\
local held, ages = tonumber(ARGV[1]), tonumber(ARGV[2])
local found = tonumber(redis.call('hget', KEYS[1], '{REVISION}') or '0') or 0
if found >= held and math.floor(found / ages) == math.floor(held / ages) then return 0 end
local put = 0
for i = 3, #ARGV, 2 do put = put + redis.call('hsetnx', KEYS[1], ARGV[i], ARGV[i + 1]) end
if put > 0 or found == 0 then redis.call('hset', KEYS[1], '{REVISION}', ARGV[1]) end
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
    revision: int = field(default=0, compare=False)
    """Grows with each change; 0: there was none, or what Redis held of them is lost."""
    fields: Mapping[str, str] = field(default_factory=dict, compare=False)
    """As they stand in the hash."""
    unread: tuple[str, ...] = ()
    """Unreadable fields, which limit nothing."""

    def lacks(self, held: ClusterLimits) -> bool:
        """Whether Redis has lost what it `held` before: nobody takes all away without a trace."""
        of_the_same = self.revision // _AGES == held.revision // _AGES
        return held.revision > 0 and (self.revision < held.revision or not of_the_same)


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
        first = (secrets.randbelow(2**31) + 1) * _AGES
        wanted = {s.field: _GONE if n is None else str(n) for s, n in changes.items()}
        with _explained():
            self._client.ping()  # what fails from here on may have been heard
        try:
            self._eval(_CHANGE, first, *chain.from_iterable(wanted.items()))
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

    def restore(self, lost: ClusterLimits) -> bool:
        """Puts back what was lost; what was set since stays. Whether there was anything to put.

        Where others have put it back already there is not. Raises StoreUnavailable.
        """
        flat = chain.from_iterable(
            (name, text) for name, text in lost.fields.items() if name != REVISION
        )
        return bool(self._eval(_RESTORE, lost.revision, _AGES, *flat))

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
            _check_figure(setting, figure)


def _check_figure(setting: Setting, figure: int) -> None:
    if type(figure) is not int or not 1 <= figure <= _most(setting.figure):
        hint = "; to run none of a type, pause it" if setting.type is not None else ""
        raise InvalidLimit(
            f"{setting.figure}={figure!r}: a whole number from 1 to {_most(setting.figure)}{hint}"
        )


def _most(figure: Figure) -> int:
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
    given = dict(fields)
    revision = given.get(REVISION, "0")
    for name, value in sorted(given.items()):
        if name == REVISION:
            continue
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
        revision=int(revision) if revision.isdecimal() else 0,
        fields=given,
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
