"""Filters of requests as they stand in a URL. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

from consumer.admin.since import parse_since
from feedback.contract.states import State

NAMES: Final = ("state", "type", "id", "key", "reference", "code", "since", "until", "text")
LONGEST: Final = 200
FILTER_RULE: Final = f"at most {LONGEST} characters, none of them zero"
"""What `may_be_filter` asks for, in words."""
IN_JOURNAL: Final = tuple(state for state in State if state is not State.ACCEPTED)
"""States that a row can be in."""


def may_be_filter(text: str) -> bool:
    """Whether PostgreSQL takes it, and it is no longer than what it could find."""
    return len(text) <= LONGEST and "\0" not in text


class FilterRefused(ValueError):
    """A filter that means nothing; says which, and why."""


class RequestFilters:
    """What somebody looks for."""

    def __init__(self, given: Mapping[str, str]) -> None:
        """Raises FilterRefused."""
        self.values = {
            name: text for name in NAMES if (text := given.get(name, "").strip(" \t\r\n"))
        }
        for name, text in self.values.items():
            if not may_be_filter(text):
                raise FilterRefused(f"{name}: {FILTER_RULE}")
        if self.values.get("state", State.DEAD) not in IN_JOURNAL:
            raise FilterRefused(f"state: one of {', '.join(IN_JOURNAL)}")
        now = datetime.now(UTC)
        self._times: dict[str, datetime] = {
            name: _time(name, self.values[name], now)
            for name in ("since", "until")
            if name in self.values
        }

    def __getitem__(self, name: str) -> str:
        return self.values.get(name, "")

    def __bool__(self) -> bool:
        return bool(self.values)

    def asked(self, types: Sequence[str] | None) -> dict[str, Any]:
        """As the journal is asked; `types` are those that somebody may see, None all."""
        filters: dict[str, Any] = {**self.values, **self._times}
        if types is not None:
            filters["types"] = list(types)
        return filters

    def query(self, **more: str) -> str:
        """Of a URL, with its question mark; "" where there is nothing to say."""
        said = {**self.values, **{name: text for name, text in more.items() if text}}
        return f"?{urlencode(said)}" if said else ""

    def said(self) -> str:
        """In words."""
        return ", ".join(f"{name} {text}" for name, text in self.values.items()) or "all"


def _time(name: str, text: str, now: datetime) -> datetime:
    try:
        return parse_since(text, now)
    except ValueError as error:
        raise FilterRefused(f"{name}: {error}") from None
