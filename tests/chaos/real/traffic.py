"""What is sent: requests of every kind, from a seed. Pure."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from tests.chaos.odd_messages import CHANGES, DONE, LETTER, Generator, Message
from tests.chaos.real.witness import channel_of

KEYS = 60
ACCOUNTS = 6


class Kind(StrEnum):
    """What a message is to the ledger."""

    REQUEST = "request"
    CONFLICT = "conflict"
    """Another payload under an id that is done."""
    MALFORMED = "malformed"


@dataclass(slots=True)
class Item:
    """One request, or one message that is none."""

    id: str
    kind: Kind
    type: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    n: int = 0
    """Its number among those of its key."""
    ends: frozenset[str] = frozenset({"done"})
    """States in which it may end."""
    timestamp: int = 0


MIX: dict[str, float] = {
    "move": 50, "batch": 10, "pure": 8, "charge": 7, "blind": 2, "shaky": 4, "swap": 4, "later": 4,
    "recount": 4, "once": 4, "refused": 2, "orphan": 0.4, "nul": 0.4, "doomed": 0.4,
}  # fmt: skip
"""Shares of the types."""
ENDS: dict[str, frozenset[str]] = {
    "recount": frozenset({"done", "superseded"}),
    "once": frozenset({"done", "failed"}),
    "blind": frozenset({"done", "in_doubt"}),
    "refused": frozenset({"rejected"}),
    "orphan": frozenset({"failed"}),
    "nul": frozenset({"failed"}),
}
EFFECTS = {"pure": "none", "charge": "external", "blind": "external"}
"""Types that are not `transaction`."""
NOT_AGAIN = {"once"}
"""Types of which what may have run is not run again by itself."""
CHECKED = {"charge"}
"""Types whose doubts can be settled: there is a `check`."""
IN_ORDER = {"move", "batch"}
"""Types that run once each, in the order in which they were sent."""
MALFORMED_SHARE = 0.02
ODD_TIME_SHARE = 0.02
ODD_TIMES = ("timestamp_odd", "time_odd")
"""Changes of a message's time that leave it a request: Kafka's timestamp, and its header."""
COALESCING = {"recount"}
"""Types of which the latest counts by its time: one of the year 9999 would be the last one."""
MOST_DOOMED = 40
"""Requests of an episode that run out of attempts, at most: they wait until it is calm, when an
operator has them tried again, and take the room of others meanwhile."""
DELAYED = {"later"}
"""Types that wait for a time of their own."""
NOT_TO_FORGET = frozenset({"charge", "blind", "recount"})
"""Types for which a database that forgets what it has committed breaks what is promised: what was
called outside is called again, and what was superseded runs."""


@dataclass
class Traffic:
    """An endless row of items; the same seed makes the same ones, but for times."""

    seed: int
    name: str
    without: frozenset[str] = frozenset()
    """Types that are not sent."""
    plain: float = 0.0
    """Share of the requests that are of the plainest type, whatever the mix says of the others."""
    made: int = 0
    _numbers: Counter[str] = field(default_factory=Counter)
    _doomed: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._odd = Generator(self.seed, valid=0)
        self._mix = {type_: share for type_, share in MIX.items() if type_ not in self.without}

    def next(self) -> Item:
        self.made += 1
        if self._random.random() < MALFORMED_SHARE:
            return self._malformed()
        type_ = self._type()
        id_ = f"{self.name}-{self.made}"
        key = f"k{self._random.randrange(KEYS)}"
        self._numbers[key] += 1
        payload: dict[str, Any] = {"key": key, "n": self._numbers[key]}
        headers: list[tuple[str, bytes | None]] = [
            ("ce_id", id_.encode()), ("ce_type", type_.encode()),
            ("ce_replyto", channel_of(self.name).encode()),
        ]  # fmt: skip
        match type_:
            case "shaky":
                payload["fails"] = self._random.choice((0, 1, 1, 2))
            case "swap":
                payload["accounts"] = self._random.sample(range(ACCOUNTS), 2)
                key = id_  # two of one lane never meet
            case "later":
                due = datetime.now(UTC) + timedelta(seconds=self._random.uniform(0.5, 3))
                headers.append(("ce_notbefore", due.isoformat().encode()))
        ends = ENDS.get(type_, frozenset({"done"}))
        item = Item(id_, Kind.REQUEST, type_, key.encode(), json.dumps(payload).encode(), headers,
                    payload["n"], ends)  # fmt: skip
        if type_ not in COALESCING and self._random.random() < ODD_TIME_SHARE:
            self._make_odd(item)
        return item

    def _type(self) -> str:
        if self.plain and self._random.random() < self.plain:
            return "move"
        [type_] = self._random.choices(list(self._mix), list(self._mix.values()))
        if type_ == "doomed":
            self._doomed += 1
            return type_ if self._doomed <= MOST_DOOMED else "move"
        return type_

    def _make_odd(self, item: Item) -> None:
        """Gives it a time that is out of any range, which changes nothing for it."""
        message = Message(item.id, DONE, item.headers, item.value)
        end = CHANGES[self._random.choice(ODD_TIMES)](self._random, message)
        assert end == DONE
        item.headers, item.timestamp = message.headers, message.timestamp

    def conflict(self, item: Item) -> Item | None:
        """Another payload under the id of an item that is done.

        None where the database may forget the item: then this one would come first, and run.
        """
        if self.without & NOT_TO_FORGET:
            return None
        value = json.dumps({"key": "other", "n": -1}).encode()
        return Item(item.id, Kind.CONFLICT, item.type, item.key, value, item.headers)

    def _malformed(self) -> Item:
        while (message := self._odd.next()).end != LETTER:
            pass
        if self._random.random() < 0.5:
            CHANGES["timestamp_odd"](self._random, message)
        # A value or key that the broker would refuse is no message.
        return Item(message.id, Kind.MALFORMED, "", message.key, message.value, message.headers,
                    timestamp=message.timestamp)  # fmt: skip
