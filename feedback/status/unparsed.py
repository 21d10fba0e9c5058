"""Large results of statuses, which are kept as they came until somebody reads them.

Parsed, a result takes ten times as much memory as its JSON and milliseconds for each 100 KiB, and
who hands it on need not parse it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, NamedTuple

from feedback.contract.payloads import parse_json, refuse_deep, write_json

LARGE: Final = 16 * 1024
"""Bytes of a status from which on that is done."""
_BEFORE: Final = b',"result":'
_ENDS: Final = {b"[": b"]", b"{": b"}"}
"""What JSON with further values in it begins and ends with."""


class Unparsed(NamedTuple):
    """A result that nobody has read yet."""

    json: bytes


class ParsedWhenRead:
    """A field, in place of its `slot`, which may hold what is to be parsed when it is read."""

    def __init__(self, slot: Any, *, around: int) -> None:
        self._slot = slot
        self._around = around

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        if owner is None:
            return self
        found = self._slot.__get__(owner, kind)
        if type(found) is not Unparsed:
            return found
        value = parse_json(found.json)
        refuse_deep(found.json, value, around=self._around)
        self._slot.__set__(owner, value)
        return value

    def __set__(self, owner: Any, value: Any) -> None:
        self._slot.__set__(owner, value)

    def is_kept(self, owner: Any) -> bool:
        """Whether it is large, and nobody has read it yet."""
        return type(self._slot.__get__(owner)) is Unparsed

    def as_json(self, owner: Any) -> bytes | None:
        """What it holds; None where that is None."""
        found = self._slot.__get__(owner)
        if type(found) is Unparsed:
            return found.json
        return None if found is None else write_json(found)


def fields_of(value: bytes, *, whole: bool) -> Any:
    """Those of a status, the result Unparsed where it is large, but for one read as a `whole`.

    Raises ValueError for what is not JSON, or nested too deeply.
    """
    if not whole and (split := _split(value)) is not None:
        head, result = split
        with suppress(ValueError):
            return {**parse_json(head), "result": Unparsed(result)}
    fields = parse_json(value)
    refuse_deep(value, fields)
    return fields


def _split(value: bytes) -> tuple[bytes, bytes] | None:
    """A large status without its result, and that; None where it is not known to stand last.

    In no text there is what is looked for: a quote has a backslash before it there.
    """
    start = value.find(_BEFORE) if len(value) >= LARGE else -1
    begin = start + len(_BEFORE)
    if start < 0 or _ENDS.get(value[begin : begin + 1]) != value[-2:-1] or value[-1:] != b"}":
        return None
    return value[:start] + b"}", value[begin:-1]
