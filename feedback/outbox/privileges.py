"""What a relay may do with an outbox's tables, beside what everybody needs who uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import psycopg

_RELAYS: Final = {
    "requests": ("UPDATE", "DELETE"),
    "shards": ("SELECT", "INSERT", "UPDATE"),
    "finished": ("INSERT",),
    "inbox": ("INSERT",),
}
"""Without one of these it could not write what it has done."""
_ONLY_RELAYS: Final = frozenset({("requests", "UPDATE"), ("shards", "UPDATE")})
"""What no program needs that only adds requests: who has one of these is to send."""
# UPDATE of some columns may be all that is needed. DELETE is of whole rows.
_LOOK: Final = """
SELECT c.relname, privilege, CASE privilege
    WHEN 'DELETE' THEN has_table_privilege(c.oid, privilege)
    ELSE has_any_column_privilege(c.oid, privilege) END
FROM unnest(%s::text[], %s::text[]) AS needed (name, privilege)
JOIN pg_class c ON c.relnamespace = %s::regnamespace AND c.relname = name
"""


def lacking_privileges(
    connection: psycopg.Connection[Any], schema: str, *, relay: bool
) -> dict[str, list[str]]:
    """By table, what this user lacks that is to send; nothing where it is not.

    `relay`: it is, whatever its privileges look like.
    """
    needed = [(name, privilege) for name, every in _RELAYS.items() for privilege in every]
    values = [[name for name, _ in needed], [one for _, one in needed], f'"{schema}"']
    found = connection.execute(_LOOK, values).fetchall()
    granted = {(name, privilege) for name, privilege, may in found if may}
    lacking: dict[str, list[str]] = {}
    if relay or not granted.isdisjoint(_ONLY_RELAYS):
        for name, privilege, may in found:
            if not may:
                lacking.setdefault(name, []).append(privilege)
    return lacking
