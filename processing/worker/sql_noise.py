"""What of an SQL statement is comment or quoted, and so begins and ends nothing.

It reads as the server's lexer does. What that one would read otherwise could hide a COMMIT.
"""

from __future__ import annotations

import re

_NAME = r"A-Za-z0-9_$\x80-\U0010ffff"
"""What a name goes on with: a quote behind it is not an escaping one, and a `$` is its own."""
_REST_OF_TAG = r"(?:[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_\x80-\U0010ffff]*+)?\$"
# Each begins with a character, as what begins with a look behind is tried at every place.
_OPENS = re.compile(
    rf"--|/\*|'|\"|e(?<![{_NAME}]e)'|E(?<![{_NAME}]E)'|\$(?<![{_NAME}]\$){_REST_OF_TAG}"
)
_LINE_ENDS = re.compile(r"[\n\r]|\Z")
_COMMENT = re.compile(r"/\*|\*/")
_IDENTIFIER = re.compile(r'[^"]*+(?:""[^"]*+)*+"')
_ESCAPED = r"[^'\\]*+(?:(?:\\.|'')[^'\\]*+)*+'"
_GOES_ON = r"[ \t\f\v]*+(?:--[^\n\r]*+)?+[\n\r](?:[ \t\n\r\f\v]|--[^\n\r]*+[\n\r])*+'"
"""The next part of a text, which has to begin on another line."""
_ESCAPED_TEXT = re.compile(f"{_ESCAPED}(?:{_GOES_ON}{_ESCAPED})*+", re.DOTALL)


def without_noise(statement: str, kept: str, *, escapes: bool = False) -> str:
    """The statement with its comments as white space and what is quoted as an empty text.

    The quoted identifier `kept` is left, without its quotes. What is opened and never closed is
    left as it is, with all behind it: the server takes nothing of such a statement. `escapes`: a
    backslash escapes a quote in every text, and not in `E'...'` alone. Takes time and memory in
    proportion to the statement: it may hold megabytes.
    """
    parts: list[str] = []
    taken = 0
    while opened := _OPENS.search(statement, taken):
        start, opener = opened.start(), opened[0]
        end = _end(statement, opener, opened.end(), escapes)
        if end < 0:
            break
        parts.append(statement[taken:start])
        if opener in ("--", "/*"):
            parts.append(" ")
        elif statement[start:end] == f'"{kept}"':
            parts.append(kept)
        else:
            parts.append("''")
        taken = end
    parts.append(statement[taken:])
    return "".join(parts)


def _end(statement: str, opener: str, start: int, escapes: bool) -> int:
    """The place behind the end of what `opener` opened before `start`; -1 where it has none."""
    match opener:
        case "--":
            found = _LINE_ENDS.search(statement, start)
            return len(statement) if found is None else found.start()
        case "/*":
            return _end_of_comment(statement, start)
        case '"':
            found = _IDENTIFIER.match(statement, start)
        case "'" if not escapes:
            # A doubled quote is two texts side by side, which comes to the same.
            return statement.find("'", start) + 1 or -1
        case "'" | "e'" | "E'":
            found = _ESCAPED_TEXT.match(statement, start)
        case _:
            end = statement.find(opener, start)
            return end + len(opener) if end >= 0 else -1
    return -1 if found is None else found.end()


def _end_of_comment(statement: str, start: int) -> int:
    """Comments stand in comments."""
    depth = 1
    for mark in _COMMENT.finditer(statement, start):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return mark.end()
    return -1
