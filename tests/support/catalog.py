"""All that PostgreSQL knows of a schema's tables, told so that two schemas can be compared."""

from __future__ import annotations

from typing import Any

import psycopg

_PARTS = """
SELECT 'class', relname, relkind, relpersistence, coalesce(reloptions::text, '')
FROM pg_class WHERE relnamespace = %s::regnamespace;

SELECT 'column', c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
    a.attidentity, l.collname, pg_get_expr(d.adbin, d.adrelid)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
LEFT JOIN pg_collation l ON l.oid = a.attcollation
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = %s::regnamespace AND c.relkind IN ('r', 'v');

SELECT 'constraint', conname, pg_get_constraintdef(oid), convalidated
FROM pg_constraint WHERE connamespace = %s::regnamespace;

SELECT 'index', pg_get_indexdef(i.indexrelid), i.indisvalid
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relnamespace = %s::regnamespace;

SELECT 'trigger', pg_get_triggerdef(t.oid), t.tgenabled
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid WHERE c.relnamespace = %s::regnamespace;

SELECT 'function', pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = %s::regnamespace;

SELECT 'view', relname, pg_get_viewdef(oid)
FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind = 'v'
"""


def catalog(connection: psycopg.Connection[Any], schema: str) -> set[tuple[str, ...]]:
    """Its tables, columns, constraints, indexes, triggers, functions and views."""
    parts = [part.encode() for part in _PARTS.split(";")]
    rows = [row for part in parts for row in connection.execute(part, [schema]).fetchall()]
    return {tuple(str(one).replace(schema, ":schema") for one in row) for row in rows}
