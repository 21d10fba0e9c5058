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
_HEADER_VALUE = re.compile(r"\{header_value (\w+)\}")
_BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


@functools.cache
def _texts() -> dict[str, str]:
    texts: dict[str, str] = {}
    for file in (files("feedback.journal") / "sql").iterdir():
        if file.name.endswith(".sql"):
            text = _NEAREST.sub(lambda found: nearest(found[1]), file.read_text("utf-8"))
            text = _HEADER_VALUE.sub(lambda found: _header_value(found[1]), text)
            _, *parts = _NAME.split(text)
            texts |= {n: body.strip() for n, body in zip(parts[::2], parts[1::2], strict=True)}
    return texts


@functools.cache
def query(name: str, schema: str) -> str:
    """The statement of this name, its ``{schema}`` filled in. Raises KeyError for an unknown one.

    In the files ``{nearest column}`` is a time that can be counted with (see sql_times.py), and
    ``{header_value h}`` the bytes of a header, NULL where nobody can read them.

    Text, not sql.Composed: psycopg caches what it makes of a text.
    """
    return _texts()[name].replace("{schema}", sql.Identifier(schema).as_string(None))


def _header_value(header: str) -> str:
    # The server refuses a statement that decodes one that is no base64, and with it all other rows.
    return f"CASE WHEN {header}->>1 ~ '{_BASE64}' THEN decode({header}->>1, 'base64') END"


def execute(
    connection: psycopg.Connection[Any],
    name: str,
    schema: str,
    values: Sequence[Any] | Mapping[str, Any] | None = None,
    lock: str = "",
) -> psycopg.Cursor[Any]:
    """Executes the statement of this name, planned for the values and the table as they are now.

    `lock` is put behind it as it stands: how it locks the rows.

    The server would keep the plan of a prepared one: made while the table was empty it reads all of
    it for each look-up by ids, until somebody analyses it.
    """
    return connection.execute(query(name, schema) + lock, values, prepare=False)
