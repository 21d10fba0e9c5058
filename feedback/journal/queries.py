"""SQL statements by name, from the files in sql/."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import psycopg
from psycopg import sql

from feedback.sql_times import nearest

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_NEAREST = re.compile(r"\{nearest ([\w.]+)\}")


@functools.cache
def _texts() -> dict[str, str]:
    texts: dict[str, str] = {}
    for file in (files("feedback.journal") / "sql").iterdir():
        if file.name.endswith(".sql"):
            text = _NEAREST.sub(lambda found: nearest(found[1]), file.read_text("utf-8"))
            _, *parts = _NAME.split(text)
            texts |= {n: body.strip() for n, body in zip(parts[::2], parts[1::2], strict=True)}
    return texts


@functools.cache
def query(name: str, schema: str) -> str:
    """The statement of this name, its ``{schema}`` filled in. Raises KeyError for an unknown one.

    In the files ``{nearest column}`` is a time that can be counted with (see sql_times.py).

    Text, not sql.Composed: psycopg caches what it makes of a text.
    """
    return _texts()[name].replace("{schema}", sql.Identifier(schema).as_string(None))


def execute(
    connection: psycopg.Connection[Any],
    name: str,
    schema: str,
    values: Sequence[Any] | Mapping[str, Any] | None = None,
) -> psycopg.Cursor[Any]:
    """Executes the statement of this name, planned for the values and the table as they are now.

    The server would keep the plan of a prepared one: made while the table was empty it reads all of
    it for each look-up by ids, until somebody analyses it.
    """
    return connection.execute(query(name, schema), values, prepare=False)
