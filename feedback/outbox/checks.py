"""Whether the tables that are found are those of this version, whoever has made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from feedback.outbox.migrations import outbox_migrations
from feedback.outbox.names import DEFAULT_SENDER, in_schema
from feedback.outbox.privileges import lacking_privileges
from feedback.schema_versions import found_version

if TYPE_CHECKING:
    import psycopg

COLUMNS: Final = {
    "requests": (
        "seq created_at next_at sent_at not_before sends failures tries seen shard id type sender"
        " state fingerprint key payload headers reference code error"
    ),
    "finished": (
        "seq created_at sent_at settled_at sends id type sender state code fingerprint key"
        " reference result error"
    ),
    "senders": "name",
    "shards": "sender shard",
    "inbox": "n at id type sender state code reference result error",
    "all_requests": (
        "id type sender state code result error sends created_at sent_at settled_at next_at"
        " not_before key reference seq"
    ),
    "schema_version": "version name applied_at",
}
"""Table or view -> the columns that this version uses."""

# Not of information_schema, which leaves out what the user has no privileges on.
_COLUMNS: Final = """
SELECT c.relname, has_any_column_privilege(c.oid, 'SELECT'), array_agg(a.attname::text)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind IN ('r', 'p', 'f', 'v', 'm')
    AND a.attnum > 0 AND NOT a.attisdropped
GROUP BY c.oid, c.relname
"""
_USABLE: Final = "SELECT has_schema_privilege(%s::regnamespace, 'USAGE')"
_EVERYBODYS: Final = frozenset({"requests", "finished"})
"""What programs that add requests read, and relays."""
_UNLOOKED: Final = {"schema_version": "its version is", "senders": "whether senders are there is"}
_SENDERS: Final = "SELECT name FROM :schema.senders"
_UNIQUE: Final = """
SELECT c.relname FROM pg_index i
JOIN pg_class c ON c.oid = i.indrelid
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
WHERE c.relnamespace = %s::regnamespace AND a.attname = 'id'
    AND i.indisunique AND i.indnkeyatts = 1 AND i.indpred IS NULL AND i.indisvalid
"""
_INDEXES: Final = """
SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE c.relnamespace = %s::regnamespace AND i.indisvalid
"""
_TRIGGER: Final = """
SELECT FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
WHERE c.relnamespace = %s::regnamespace AND c.relname = 'requests'
    AND t.tgname = 'requests_added' AND t.tgenabled IN ('O', 'A')
"""
_FUNCTION: Final = """
SELECT FROM pg_proc WHERE pronamespace = %s::regnamespace AND proname = 'add_requests'
"""


class OutboxProblem(NamedTuple):
    """One thing that is not as this version has it."""

    text: str
    advice: str
    wrong: bool = True
    """False where the outbox works all the same."""


MIGRATE: Final = "run `oncepool outbox migrate`"
INDEXES: Final = {
    "requests_unsent": "what is to be sent",
    "requests_backing_off": "what waits behind a row that was refused",
    "requests_sent": "what waits for an answer",
    "requests_dead": "a dead letter",
    "finished_settled_at": "what is to be pruned",
    "finished_conflicts": "a conflict",
}
"""Index -> what takes the longer to find without it the larger its table is."""
NO_TRIGGER: Final = OutboxProblem(
    "trigger requests_added is missing or disabled: relays are not woken by a commit",
    "leave it where commits that notify take turns for too long",
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


def problems(
    connection: psycopg.Connection[Any],
    schema: str,
    senders: Sequence[str] = (),
    *,
    relay: bool = False,
) -> list[OutboxProblem]:
    """What is missing of the outbox and of these senders; nothing where all is well.

    What only the owner need read is looked at where this user may read it. `relay`: this user is a
    relay's, and not only where its privileges look so.
    """
    rows = connection.execute(_COLUMNS, [f'"{schema}"']).fetchall()
    found = {name: columns for name, _, columns in rows}
    there = {name for name in COLUMNS if name in found}
    if (closed := _closed(connection, schema, there)) is not None:
        return [closed]
    readable = {name for name, may, _ in rows if may}
    said = _of_the_columns(schema, found)
    said += _of_the_privileges(schema, there - readable)
    said += _of_a_relay(connection, schema, relay=relay)
    if (problem := encoding_problem(connection)) is not None:
        said.append(problem)
    if "schema_version" in there & readable:
        said += _of_the_version(connection, schema)
    if "senders" in there & readable:
        said += _of_the_senders(connection, schema, senders)
    unique = {name for (name,) in connection.execute(_UNIQUE, [f'"{schema}"'])}
    for name in ("requests", "finished"):
        if name in there and name not in unique:
            advice = f"CREATE UNIQUE INDEX ON {schema}.{name} (id)"
            said.append(OutboxProblem(f"{schema}.{name} has no unique index on id", advice))
    if "requests" in there:
        said += _of_the_indexes(connection, schema)
        if connection.execute(_FUNCTION, [f'"{schema}"']).fetchone() is None:
            said.append(OutboxProblem(f"function {schema}.add_requests is missing", MIGRATE))
        if connection.execute(_TRIGGER, [f'"{schema}"']).fetchone() is None:
            said.append(NO_TRIGGER)
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
    advice = f"GRANT USAGE ON SCHEMA {schema}"
    return OutboxProblem(f"schema {schema} can't be used by this user", advice)


def _of_the_indexes(connection: psycopg.Connection[Any], schema: str) -> list[OutboxProblem]:
    there = {name for (name,) in connection.execute(_INDEXES, [f'"{schema}"'])}
    return [
        OutboxProblem(
            f"index {name} is missing: {what} takes the longer to find the larger the table is",
            "make it as `oncepool outbox migrate --sql` has it",
            wrong=False,
        )
        for name, what in INDEXES.items()
        if name not in there
    ]


def _of_the_columns(schema: str, found: Mapping[str, Sequence[str]]) -> list[OutboxProblem]:
    said = []
    for name, columns in COLUMNS.items():
        lacking = sorted(set(columns.split()).difference(found.get(name, ())))
        if name not in found:
            said.append(OutboxProblem(f"{schema}.{name} is missing", MIGRATE))
        elif lacking:
            said.append(OutboxProblem(f"{schema}.{name} lacks {', '.join(lacking)}", MIGRATE))
    return said


def _of_the_privileges(schema: str, unreadable: AbstractSet[str]) -> list[OutboxProblem]:
    """Of what everybody needs who adds or sends, and of what goes unlooked at."""
    said = []
    for name in sorted(unreadable & {*_EVERYBODYS, *_UNLOOKED}):
        text = f"{schema}.{name} can't be read by this user"
        advice = f"GRANT SELECT ON {schema}.{name}"
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
            f"GRANT {', '.join(some)} ON {schema}.{name}",
        )
        for name, some in lacking_privileges(connection, schema, relay=relay).items()
    ]


def _of_the_senders(
    connection: psycopg.Connection[Any], schema: str, senders: Sequence[str]
) -> list[OutboxProblem]:
    known = {name for (name,) in connection.execute(in_schema(_SENDERS, schema).encode())}
    return [
        OutboxProblem(f"sender {name} is not registered", MIGRATE)
        for name in (DEFAULT_SENDER, *senders)
        if name not in known
    ]


def _of_the_version(connection: psycopg.Connection[Any], schema: str) -> list[OutboxProblem]:
    version, known = found_version(connection, schema), outbox_migrations()[-1].version
    if version > known:
        advice = "install the newer Oncepool here as well"
    elif version < known:
        advice = MIGRATE
    else:
        return []
    text = f"the outbox is at version {version}, this Oncepool knows version {known}"
    return [OutboxProblem(text, advice)]
