"""What a consumer's database user may do with the journal's tables, and what of it is missing.

The one list of it; docs/deployment.md shows it as GRANTs. Commands of operators need more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Final

from psycopg import errors

from feedback.journal.connections import Connection

Privileges = Mapping[str, tuple[str, ...]]


class Use(StrEnum):
    """What of the journal not every consumer uses."""

    COALESCING = "coalescing"
    """Types with coalesce=."""
    COMPUTING = "computing"
    """Types with effect="none": a row that is done is deleted."""
    RESULTS = "results"
    """A results topic."""
    SCHEDULES = "schedules"
    """Schedules."""


ALWAYS: Final[Privileges] = {
    "schema_version": ("SELECT",),
    "requests": ("SELECT", "INSERT", "UPDATE"),
    "attempts": ("SELECT", "INSERT"),
    "dead_letters": ("SELECT", "INSERT", "UPDATE"),
    "counters": ("SELECT", "INSERT", "UPDATE"),
}
"""Table -> what each consumer needs. SELECT ... FOR UPDATE needs UPDATE."""
FOR_USE: Final[Mapping[Use, Privileges]] = {
    Use.COALESCING: {"coalesced": ("SELECT", "INSERT", "UPDATE")},
    Use.COMPUTING: {"requests": ("DELETE",), "attempts": ("DELETE",)},
    Use.RESULTS: {"results": ("SELECT", "INSERT", "UPDATE", "DELETE")},
    Use.SCHEDULES: {"schedules": ("SELECT", "INSERT", "UPDATE")},
}
# INSERT and UPDATE of some columns may be all that is granted. DELETE is of whole rows.
_MISSING: Final = """
SELECT needed.name, needed.privilege, c.oid IS NOT NULL, has_schema_privilege(n.oid, 'USAGE'),
       current_user
FROM unnest(%(names)s::text[], %(privileges)s::text[]) WITH ORDINALITY
         AS needed (name, privilege, place)
LEFT JOIN pg_namespace n ON n.nspname = %(schema)s
LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = needed.name
WHERE c.oid IS NULL OR NOT has_schema_privilege(n.oid, 'USAGE') OR NOT CASE privilege
    WHEN 'DELETE' THEN has_table_privilege(c.oid, privilege)
    ELSE has_any_column_privilege(c.oid, privilege) END
ORDER BY place
"""


def check_privileges(connection: Connection, *, schema: str, uses: Collection[str]) -> None:
    """Asks whether the user may do what a consumer with these `uses` does. Raises psycopg.Error.

    That is UndefinedTable where a table is not there, else InsufficientPrivilege; both name all.
    """
    needed = [*ALWAYS.items(), *(one for use in Use if use in uses for one in FOR_USE[use].items())]
    pairs = [(name, privilege) for name, every in needed for privilege in every]
    values = {
        "schema": schema,
        "names": [name for name, _ in pairs],
        "privileges": [privilege for _, privilege in pairs],
    }
    found = connection.execute(_MISSING, values).fetchall()
    if not found:
        return
    if gone := sorted({f"{schema}.{name}" for name, _, there, *_ in found if not there}):
        raise errors.UndefinedTable(f"the journal lacks {', '.join(gone)}")
    *_, usable, user = found[0]
    if not usable:
        raise errors.InsufficientPrivilege(f"user {user} lacks USAGE on schema {schema}")
    tables: dict[str, list[str]] = {}
    for name, privilege, *_ in found:
        tables.setdefault(name, []).append(privilege)
    lacks = "; ".join(f"{', '.join(some)} on {schema}.{name}" for name, some in tables.items())
    raise errors.InsufficientPrivilege(f"user {user} lacks {lacks}")
