"""The header Prefer (RFC 7240): whether an answer is waited for, and how long."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

_ONE: Final = re.compile(
    r"""\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+)           # name
    (?:\s*=\s*("(?:[^"\\]|\\.)*"|[^\s;,"]+))?      # value
    (?:\s*;[^,"]*+(?:"(?:[^"\\]|\\.)*+"[^,"]*+)*+)?  # parameters: nothing is given back, as each
                                                 # space given back would be tried again below
    \s*(?:,|$)""",
    re.VERBOSE,
)
_UNREADABLE: Final = re.compile(r"[^,]*+(?:,|$)")
"""An element of the list that is empty or can't be read: the next one may be."""
_SECONDS: Final = re.compile(r"\d{1,9}", re.ASCII)


class Preferences(NamedTuple):
    """What of it is known here. `wait` in seconds; None where it is not asked for."""

    respond_async: bool = False
    wait: int | None = None

    def applied(self, waited: float | None) -> str:
        """Preference-Applied, where it was waited so long at most; empty where nothing applied."""
        applied = ["respond-async"] if self.respond_async else []
        if waited is not None:
            applied.append(f"wait={waited:g}")
        return ", ".join(applied)


def read_preferences(values: Sequence[str]) -> Preferences:
    """The preferences. What can't be read counts as not said, as a preference may be ignored."""
    said: dict[str, str] = {}
    for value in values:
        place = 0
        while place < len(value) and (
            one := _ONE.match(value, place) or _UNREADABLE.match(value, place)
        ):
            if one.re is _ONE:
                # Of a preference that stands twice the first counts.
                said.setdefault(one[1].lower(), (one[2] or "").strip('"'))
            place = one.end()
    wait = said.get("wait", "")
    return Preferences(
        respond_async="respond-async" in said,
        wait=int(wait) if _SECONDS.fullmatch(wait) else None,
    )
