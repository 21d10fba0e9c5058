"""Partitions that take nothing while others do, and which messages are theirs. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Final

from feedback.backoff import Backoff

FIRST_PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 60.0
"""Seconds between two tries of a partition that takes nothing."""
LONGEST_HOLD: Final = 600.0
"""Seconds for which what does not ask waits without another look, at most."""
_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


class Leading(IntEnum):
    """Whether a partition has a leader, as brokers say to everybody. False where it has none."""

    NONE = 0
    WHOLE = 1
    """With replicas enough to take a message."""
    SHORT = 2
    """With too few of them in sync: it takes a message from nobody."""


Leaders = Callable[[], Mapping[int, Leading]]
"""Asks the brokers; nothing where none answers."""


class StuckPartitions:
    """For how long messages of which key wait.

    A partition is one of those once it has confirmed nothing of a batch, while others are not
    known to be so: of those that were not tried, nothing is known. Then, after pauses, one message
    asks whether it takes them again.
    """

    def __init__(self, draw: Callable[[], float] = random.random) -> None:
        """`draw` spreads holds: from 0 to 1."""
        self._draw = draw
        self._number = 0
        """Of the topic's partitions; 0 while nobody needs it, or where keys don't tell theirs."""
        self._until: dict[int, float] = {}
        self._pauses: dict[int, Backoff] = {}
        self._since: dict[int, float] = {}
        self._freed: set[int] = set()
        self._lacking: set[int] = set()
        """As brokers have said when they were asked last: nobody can send to them."""
        self._leading: dict[int, float] = {}
        """Partition -> since when it has been known to have a leader again, and not been tried."""

    def __bool__(self) -> bool:
        return bool(self._until)

    def explain(
        self, confirmed: Mapping[bytes, int], late: Mapping[bytes, int], ask: Leaders, now: float
    ) -> list[int] | None:
        """Those that are to blame for what nobody has confirmed, as far as that is news.

        Both are keys, and where they went to, -1 where that is not known. None where it is all
        brokers, as far as is known: nothing was confirmed, and no partition is left to be tried.
        """
        tried = set(late.values())
        if not confirmed and all(map(self.has, tried)):
            return self.took_nothing(tried, now)
        leaders = self._ask(ask)
        others = {partition for partition, leading in leaders.items() if leading} - tried
        if not confirmed and (-1 in tried or others <= self._until.keys()):
            return None
        if leaders:
            seen = {**confirmed, **late}
            self.learn(len(leaders), {key: where for key, where in seen.items() if where >= 0})
        return self.took_nothing(tried - {-1} - set(confirmed.values()), now)

    def look(self, ask: Leaders, now: float) -> None:
        """Of those that may be tried again the ones without a leader are not.

        One that has a leader again, and that no message tries in LONGEST_PAUSE, is forgotten: there
        may be none for it any more, and nobody need ask about it turn after turn.
        """
        self.took([one for one, since in self._leading.items() if now - since >= LONGEST_PAUSE])
        if due := self.due(now) - self._leading.keys():
            leaders = self._ask(ask)
            self.took_nothing((one for one in due if not leaders.get(one, True)), now)
            self._leading.update((one, now) for one in due if leaders.get(one, False))

    def learn(self, number: int, seen: Mapping[bytes, int]) -> None:
        """The topic has so many partitions. `seen`: keys, and where they went to.

        Where one went elsewhere another partitioner is at work: then keys say nothing.
        """
        as_said = all(partition_of(key, number) == where for key, where in seen.items())
        self._number = number if as_said else 0
        if not self._number:
            self.took(list(self._until))

    def of(self, key: bytes) -> int | None:
        """Its partition; None where that is not known."""
        return partition_of(key, self._number) if self._number else None

    def has(self, partition: int | None) -> bool:
        """Whether it took nothing when it was last tried."""
        return partition in self._until

    def due(self, now: float) -> set[int]:
        """Those that may be tried again."""
        return {partition for partition, until in self._until.items() if until <= now}

    def waits(self, key: bytes, now: float) -> bool:
        """Whether a message of this key is not to be sent now.

        Where its partition may be tried again this one asks, and the next ones wait.
        """
        if not self._until:
            return False
        partition = partition_of(key, self._number)
        until = self._until.get(partition)
        if until is None:
            return False
        if until > now:
            return True
        self._until[partition] = now + FIRST_PAUSE
        self._leading.pop(partition, None)
        return False

    def pause(self, partition: int | None, now: float) -> float:
        """Seconds for which what is for it waits."""
        if partition is None:
            return LONGEST_PAUSE / 2
        if partition not in self._until:
            return FIRST_PAUSE
        return max(1.0, self._until[partition] - now)

    def hold(self, partition: int, now: float) -> float:
        """Seconds for which what is for one that takes nothing waits where something else asks.

        Where nobody can send to it, about as long as that has lasted, and not all of it until the
        same moment: what waits is looked at no more often than it came, and beside what is for
        other partitions. Else it may be that only this client can't reach its leader.
        """
        longest = LONGEST_HOLD if partition in self._lacking else LONGEST_PAUSE
        whole = min(max(now - self._since[partition], LONGEST_PAUSE), longest)
        return whole * (0.5 + 0.5 * self._draw())

    def _ask(self, ask: Leaders) -> Mapping[int, Leading]:
        leaders = ask()
        self._lacking = {one for one, leading in leaders.items() if leading is not Leading.WHOLE}
        return leaders

    def freed(self) -> list[int]:
        """Those that, since this was last asked, count no more as ones that take nothing."""
        freed = sorted(self._freed)
        self._freed.clear()
        return freed

    def took_nothing(self, partitions: Iterable[int], now: float) -> list[int]:
        """They were tried in vain; those of them of which that is news."""
        news = []
        for partition in partitions if self._number else ():
            if partition not in self._pauses:
                self._pauses[partition] = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
                self._since[partition] = now
                self._freed.discard(partition)
                news.append(partition)
            self._until[partition] = now + self._pauses[partition].next()
            self._leading.pop(partition, None)
        return sorted(news)

    def took(self, partitions: Iterable[int]) -> list[int]:
        """They have confirmed something; those of them of which that is news."""
        news = sorted(self._until.keys() & set(partitions))
        for partition in news:
            del self._until[partition], self._pauses[partition], self._since[partition]
            self._freed.add(partition)
            self._leading.pop(partition, None)
        return news


def partition_of(key: bytes, number: int) -> int:
    """As librdkafka's `murmur2_random` and Java's clients choose for a key."""
    return (_murmur2(key) & 0x7FFFFFFF) % number


def _murmur2(data: bytes) -> int:
    length = len(data)
    whole = length & ~3
    h = _SEED ^ length
    for n in range(0, whole, 4):
        k = int.from_bytes(data[n : n + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = h * _M & _MASK ^ k
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)
