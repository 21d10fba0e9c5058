"""Whether the tables that are found are those of this version, whoever has made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final

from feedback.errors import OutboxError, OutboxMissing, OutboxTooNew
from feedback.outbox.definitions import ADDING, COLUMNS, KEYS
from feedback.outbox.differences import AS_PRINTED, differences, lacking_uniqueness
from feedback.outbox.migrations import outbox_migrations
from feedback.outbox.names import DEFAULT_SENDER, in_schema
from feedback.outbox.privileges import lacking_privileges
from feedback.outbox.problem import OutboxProblem
from feedback.schema_versions import found_version

if TYPE_CHECKING:
    import psycopg

# Not of information_schema, which leaves out what the user has no privileges on.
_COLUMNS: Final = """
SELECT c.relname, has_any_column_privilege(c.oid, 'SELECT'), array_agg(a.attname::text)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind IN ('r', 'p', 'f', 'v', 'm')
    AND a.attnum > 0 AND NOT a.attisdropped
GROUP BY c.oid, c.relname
"""
_VERSION_READABLE: Final = """
SELECT FROM pg_class WHERE relnamespace = to_regnamespace(%s) AND relname = 'schema_version'
    AND has_schema_privilege(relnamespace, 'USAGE') AND has_table_privilege(oid, 'SELECT')
"""
_USABLE: Final = "SELECT has_schema_privilege(%s::regnamespace, 'USAGE')"
_EVERYBODYS: Final = frozenset({"requests", "finished"})
"""What programs that add requests read, and relays."""
_UNLOOKED: Final = {"schema_version": "its version is", "senders": "whether senders are there is"}
_SENDERS: Final = "SELECT name FROM :schema.senders"
_TRIGGER: Final = """
SELECT FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
WHERE c.relnamespace = %s::regnamespace AND c.relname = 'requests'
    AND t.tgname = 'requests_added' AND t.tgenabled IN ('O', 'A')
    AND t.tgtype = 4 AND t.tgqual IS NULL -- after each statement that inserts, whatever it inserts
    AND t.tgfoid IN (
        SELECT oid FROM pg_proc WHERE pronamespace = c.relnamespace AND proname = 'wake_relays')
"""
_FUNCTION: Final = """
SELECT FROM pg_proc WHERE pronamespace = %s::regnamespace AND proname = %s
"""

_TAKES: Final = """
SELECT has_schema_privilege(p.pronamespace, 'USAGE') AND has_any_column_privilege(c.oid, 'INSERT')
FROM pg_proc p JOIN pg_class c ON c.relnamespace = p.pronamespace AND c.relname = 'requests'
WHERE p.pronamespace = to_regnamespace(%s) AND p.proname = %s
"""

MIGRATE: Final = "run `oncepool outbox migrate`, or what it prints with --sql"
NO_TRIGGER: Final = OutboxProblem(
    "trigger requests_added is missing, disabled or another one: relays are not woken by a commit",
    "ALTER TABLE ... ENABLE TRIGGER requests_added, or make it as `oncepool outbox migrate --sql`"
    " prints it; leave it so where commits that notify take turns for too long",
    wrong=False,
)


def encoding_problem(connection: psycopg.Connection[Any]) -> OutboxProblem | None:
    """What comes of a database whose texts are not UTF-8; None where they are."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding in (None, "UTF8"):
        return None
    comes = "answers with other characters end without their results"
    if encoding == "SQL_ASCII":  # takes any bytes, and gives none that are no UTF-8
        comes = "a row that another program wrote with bytes that are no UTF-8 stops its sender"
    return OutboxProblem(
        f"the database's encoding is {encoding}: {comes}",
        "keep the outbox in a database with the encoding UTF8",
        wrong=False,
    )


def refuse_other_version(connection: psycopg.Connection[Any], schema: str) -> None:
    """Raises OutboxMissing, OutboxTooNew where the outbox says that it is of another version.

    Where it says nothing, or not to this user, its tables will.
    """
    if connection.execute(_VERSION_READABLE, [f'"{schema}"']).fetchone() is None:
        return
    version, known = found_version(connection, schema), outbox_migrations()[-1].version
    if version < known:
        raise OutboxMissing(schema, f"it is at version {version}, {known} is needed")
    if version > known:
        raise OutboxTooNew(schema, version, known)


def refuse_closed(connection: psycopg.Connection[Any], schema: str) -> None:
    """Raises OutboxMissing, OutboxError where this user can't add requests. A look at the catalog.

    One of another version takes them as long as it has the function that adds them.
    """
    found = connection.execute(_TAKES, [f'"{schema}"', ADDING]).fetchone()
    if found is None:
        refuse_other_version(connection, schema)
        raise OutboxMissing(schema, f"table requests or function {ADDING} is missing")
    if not found[0]:
        raise OutboxError(
            f"this user may not add requests to the outbox: GRANT USAGE ON SCHEMA {schema} and"
            f" INSERT ON {schema}.requests{_to(connection)}"
        )


def problems(
    connection: psycopg.Connection[Any],
    schema: str,
    senders: Sequence[str] = (),
    *,
    relay: bool = False,
) -> list[OutboxProblem]:
    """What is missing of the outbox and of these senders, or defined otherwise; else nothing.

    What only the owner need read is looked at where this user may read it. `relay`: this user is a
    relay's, and not only where its privileges look so; what is there and defined otherwise is left
    to who asks for that, so that it keeps no relay from its work, and what an outbox of another
    version lacks is not named.
    """
    rows = connection.execute(_COLUMNS, [f'"{schema}"']).fetchall()
    found = {name: columns for name, _, columns in rows}
    there = {name for name in COLUMNS if name in found}
    if (closed := _closed(connection, schema, there)) is not None:
        return [closed]
    readable = {name for name, may, _ in rows if may}
    known = outbox_migrations()[-1].version
    version = found_version(connection, schema) if "schema_version" in there & readable else None
    if relay and version not in (known, None):
        return _of_the_version(schema, version, known)
    advice = AS_PRINTED if version == known else _advice(version, known)
    said = _of_the_columns(schema, found, advice)
    said += _of_the_privileges(connection, schema, there - readable)
    said += _of_a_relay(connection, schema, relay=relay)
    if (problem := encoding_problem(connection)) is not None:
        said.append(problem)
    if version is not None:
        said += _of_the_version(schema, version, known)
    if "senders" in there & readable:
        said += _of_the_senders(connection, schema, senders)
    said += lacking_uniqueness(connection, schema, {key for key in KEYS if key[0] in there})
    if "requests" in there:
        if connection.execute(_FUNCTION, [f'"{schema}"', ADDING]).fetchone() is None:
            said.append(OutboxProblem(f"function {schema}.{ADDING} is missing", advice))
        if connection.execute(_TRIGGER, [f'"{schema}"']).fetchone() is None:
            said.append(NO_TRIGGER)
    if not relay and version in (known, None):  # others have other definitions
        said += differences(connection, schema, there)
    return said


def _closed(
    connection: psycopg.Connection[Any], schema: str, there: AbstractSet[str]
) -> OutboxProblem | None:
    """Why nothing more can be said."""
    if not there:
        return OutboxProblem(f"schema {schema} has no outbox", MIGRATE)
    [(usable,)] = connection.execute(_USABLE, [f'"{schema}"']).fetchall()
    if usable:
        return None
    advice = f"GRANT USAGE ON SCHEMA {schema}{_to(connection)}"
    return OutboxProblem(f"schema {schema} can't be used by this user", advice)


def _of_the_columns(
    schema: str, found: Mapping[str, Sequence[str]], advice: str
) -> list[OutboxProblem]:
    said = []
    for name, columns in COLUMNS.items():
        lacking = sorted(set(columns).difference(found.get(name, ())))
        if name not in found:
            said.append(OutboxProblem(f"{schema}.{name} is missing", advice))
        elif lacking:
            said.append(OutboxProblem(f"{schema}.{name} lacks {', '.join(lacking)}", advice))
    return said


def _to(connection: psycopg.Connection[Any]) -> str:
    """The end of a GRANT to this user."""
    user = connection.info.user.replace('"', '""')
    return f' TO "{user}"'


def _of_the_privileges(
    connection: psycopg.Connection[Any], schema: str, unreadable: AbstractSet[str]
) -> list[OutboxProblem]:
    """Of what everybody needs who adds or sends, and of what goes unlooked at."""
    said = []
    for name in sorted(unreadable & {*_EVERYBODYS, *_UNLOOKED}):
        text = f"{schema}.{name} can't be read by this user"
        advice = f"GRANT SELECT ON {schema}.{name}{_to(connection)}"
        unlooked = _UNLOOKED.get(name)
        if unlooked is not None:
            text = f"{text}: {unlooked} not looked at"
        said.append(OutboxProblem(text, advice, wrong=unlooked is None))
    return said


def _of_a_relay(
    connection: psycopg.Connection[Any], schema: str, *, relay: bool
) -> list[OutboxProblem]:
    return [
        OutboxProblem(
            f"a relay of this user can't work: it lacks {', '.join(some)} on {schema}.{name}",
            f"GRANT {', '.join(some)} ON {schema}.{name}{_to(connection)}",
        )
        for name, some in lacking_privileges(connection, schema, relay=relay).items()
    ]


def _of_the_senders(
    connection: psycopg.Connection[Any], schema: str, senders: Sequence[str]
) -> list[OutboxProblem]:
    known = {name for (name,) in connection.execute(in_schema(_SENDERS, schema).encode())}
    advice = f"run `oncepool outbox migrate`, or insert it into {schema}.senders"
    return [
        OutboxProblem(f"sender {name} is not registered", advice)
        for name in (DEFAULT_SENDER, *senders)
        if name not in known
    ]


def _of_the_version(schema: str, version: int, known: int) -> list[OutboxProblem]:
    if version == known:
        return []
    text = f"the outbox in schema {schema} is at version {version}, this Oncepool knows {known}"
    return [OutboxProblem(text, _advice(version, known))]


def _advice(version: int | None, known: int) -> str:
    """How an outbox and this Oncepool, which knows that version, come to be of one version."""
    if not version:
        return MIGRATE
    if version > known:
        return "install the newer Oncepool here as well"
    return f"run `oncepool outbox migrate`, or what it prints with --sql --from {version}"
