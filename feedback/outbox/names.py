"""Where an outbox is, and what it is called."""

from __future__ import annotations

import os
import re
from typing import Final

from feedback.errors import ConfigurationError

VARIABLE: Final = "ONCEPOOL_OUTBOX_SCHEMA"
DEFAULT_SCHEMA: Final = "oncepool_outbox"
DEFAULT_SENDER: Final = "default"
SHARDS: Final = 64
"""Parts of the rows that relays share out among each other; a key is always in one of them."""
CONFLICT: Final = "conflict"
"""Code of a row whose id belongs to another request."""
DROPPED_CONFLICT: Final = "conflict_dropped"
"""Code of such a row once an operator has given it up."""
WINDOW: Final = 86_400.0
"""Seconds after its last send in which a row may be sent again without a thought: what was silent
for longer may have been forgotten by the consumers, and would run twice."""

NOTIFIED_ID: Final = "left(id, 1999)"
"""What NOTIFY says of an id: it has room for less than 8,000 bytes, and a character takes four at
most. What is longer was written by hand, and is no request's."""

SCHEMA_PATTERN: Final = "^[a-z_][a-z0-9_]{0,62}$"
_SETTLED: Final = "_settled"
_SCHEMA: Final = re.compile(SCHEMA_PATTERN)


def schema_from_environment() -> str:
    """The schema of this process's outbox. Raises ConfigurationError for what is no name."""
    return check_schema_name(os.environ.get(VARIABLE, "").strip() or DEFAULT_SCHEMA)


def check_schema_name(schema: str) -> str:
    """The name, which then needs nothing but quotes in SQL. Raises ConfigurationError."""
    if not _SCHEMA.fullmatch(schema):
        raise ConfigurationError(
            f"{VARIABLE} is {schema!r}: a schema's name has 1 to 63 small letters, digits and"
            " underscores, and does not begin with a digit"
        )
    return schema


def settled_channel(schema: str) -> str:
    """The channel of NOTIFY that says the id of a request whose end is known."""
    return f"{schema[: 63 - len(_SETTLED)]}{_SETTLED}"


def in_schema(sql: str, schema: str) -> str:
    """SQL in which `:schema` stands for the outbox's. Raises ConfigurationError."""
    return sql.replace(":schema", f'"{check_schema_name(schema)}"')
