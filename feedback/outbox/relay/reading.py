"""Rows of the table read as messages, also those that another program wrote. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, Final

from feedback.contract.envelope import read
from feedback.contract.headers import check_name
from feedback.errors import Malformed
from feedback.outbox.relay.batch import ClaimedRow
from feedback.outbox.rows import COLUMN_HEADERS

_WHY: Final = 500
"""Characters of why a row can't be read."""


def as_message(row: ClaimedRow) -> ClaimedRow:
    """With its headers as a message has them; one in a foreign form keeps no other from its way.

    One that is too large to be read has none.
    """
    if row.left_out:
        return row._replace(headers=())
    text: Any = row.headers
    try:
        headers = [_header(pair) for pair in json.loads(text)]
    except (TypeError, ValueError, RecursionError) as error:
        return _unreadable(row, f"its headers are no list of names with values in base64: {error}")
    try:
        _check(row, headers)
    except Malformed as error:
        return _unreadable(row, str(error))
    return row._replace(headers=headers)


def _unreadable(row: ClaimedRow, why: str) -> ClaimedRow:
    return row._replace(headers=(), unreadable=why[:_WHY])


def _header(pair: object) -> tuple[str, bytes]:
    match pair:
        case [str(name), str(value)]:
            # What is text by mistake would be decoded to something else, but for `validate`.
            # PostgreSQL's encode() breaks lines.
            return name, base64.b64decode(value.replace("\n", ""), validate=True)
    raise TypeError(repr(pair))


def _check(row: ClaimedRow, headers: Sequence[tuple[str, bytes]]) -> None:
    """Raises Malformed where consumers would find no request, or one that is not the row's."""
    check_name("its id", row.id)
    check_name("its type", row.type)
    again = next((name for name, _ in headers if name in COLUMN_HEADERS), None)
    if again is not None:
        raise Malformed(f"{again} stands among its headers, and has a column of its own")
    if not headers:
        return
    named = [("ce_id", row.id.encode()), ("ce_type", row.type.encode())]
    found = read(("", 0, 0, 0, row.key, row.payload, [*named, *headers], None, None))
    if (found.id, found.type) != (row.id, row.type):
        raise Malformed(f"its event is another request, {found.id!r} of type {found.type!r}")
