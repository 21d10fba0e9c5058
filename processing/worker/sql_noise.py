"""What of an SQL statement is comment or quoted, and so begins and ends nothing."""

from __future__ import annotations

import re

_OPENS = re.compile(r"--|/\*|'|\"|\$\w*\$")
_TAGS = re.compile(r"(?=(\$\w*\$))")


def without_noise(statement: str, kept: str) -> str:
    """The statement with its comments as white space and what is quoted as an empty text.

    The quoted identifier `kept` is left, without its quotes. What is opened and never closed is
    left as it is. Takes time and memory in proportion to the statement: it may hold megabytes.
    """
    parts: list[str] = []
    ends = _Ends(statement)
    taken = at = 0
    while opened := _OPENS.search(statement, at):
        start, opener = opened.start(), opened[0]
        end = ends.after(opener, opened.end())
        if end < 0:
            at = start + 1
            continue
        parts.append(statement[taken:start])
        if opener in ("--", "/*"):
            parts.append(" ")
        elif (
            opener == '"' and end - start == len(kept) + 2 and statement.startswith(kept, start + 1)
        ):
            parts.append(kept)
        else:
            parts.append("''")
        taken = at = end
    parts.append(statement[taken:])
    return "".join(parts)


class _Ends:
    """Where what is opened in a statement ends. What never ends is looked for once."""

    def __init__(self, statement: str) -> None:
        self._statement = statement
        self._last: dict[str, int] | None = None
        """Where each tag of `$tag$` stands last."""
        self._last_comment: int | None = None

    def after(self, opener: str, start: int) -> int:
        """The place behind the end of what `opener` opened before `start`; -1 where it has none."""
        statement = self._statement
        match opener:
            case "--":
                end = statement.find("\n", start)
                return len(statement) if end < 0 else end
            case "/*":
                if self._last_comment is None:
                    self._last_comment = statement.rfind("*/")
                return statement.find("*/", start) + 2 if self._last_comment >= start else -1
            case "'":
                # A doubled quote is two texts side by side, which comes to the same.
                return statement.find("'", start) + 1 or -1
            case '"':
                return self._identifier(start)
        if self._last is None:
            self._last = {tag[1]: tag.start() for tag in _TAGS.finditer(statement)}
        if self._last[opener] < start:
            return -1
        return statement.find(opener, start) + len(opener)

    def _identifier(self, start: int) -> int:
        statement = self._statement
        end = statement.find('"', start)
        while end >= 0 and statement.startswith('"', end + 1):
            more = statement.find('"', end + 2)
            if more < 0:
                break
            end = more
        return end + 1 or -1
