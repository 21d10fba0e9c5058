"""Which journal a connection leads to: a text that all who use it make alike, and no others."""

from __future__ import annotations

import hashlib
from typing import Final

from feedback.journal.connections import Connection

_MAY_ASK: Final = "SELECT has_function_privilege('pg_control_system()', 'EXECUTE')"
_PARTS: Final = """
SELECT current_database(), system_identifier, d.oid
FROM pg_control_system(), pg_database d WHERE d.datname = current_database()
"""
"""A standby that was promoted keeps the system identifier, and its databases their oids."""


def journal_identity(connection: Connection, *, schema: str) -> str:
    """Database and schema by name, and a hash of what else tells them from others of these names.

    Empty where the server does not let the user ask: then nobody can compare it.
    """
    if connection.execute(_MAY_ASK).fetchall() != [(True,)]:
        return ""
    [(name, system, oid)] = connection.execute(_PARTS).fetchall()
    mark = hashlib.sha256(f"{system}/{oid}/{schema}".encode()).hexdigest()[:12]
    return f"{name}.{schema} ({mark})"
