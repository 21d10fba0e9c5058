"""How each part of an outbox is defined in this version, as PostgreSQL tells of it."""

from __future__ import annotations

import functools
import re
from typing import Final

from feedback.outbox.migrations import outbox_migrations
from feedback.outbox.names import in_schema

_TIME: Final = "timestamp with time zone"
_COLUMNS: Final = {
    "requests": f"""
        seq bigint NOT NULL GENERATED ALWAYS
        created_at {_TIME} NOT NULL
        next_at {_TIME}
        sent_at {_TIME}
        not_before {_TIME}
        sends integer NOT NULL DEFAULT 0
        failures integer NOT NULL DEFAULT 0
        tries integer NOT NULL DEFAULT 0
        seen text
        shard smallint NOT NULL
        id text COLLATE "C" NOT NULL
        type text NOT NULL
        sender text NOT NULL
        state text NOT NULL DEFAULT 'unsent'::text
        fingerprint bytea NOT NULL
        key bytea
        payload bytea NOT NULL
        headers jsonb NOT NULL
        reference text
        code text
        error text""",
    "finished": f"""
        seq bigint NOT NULL
        created_at {_TIME} NOT NULL
        sent_at {_TIME}
        settled_at {_TIME} NOT NULL
        sends integer NOT NULL
        id text COLLATE "C" NOT NULL
        type text NOT NULL
        sender text NOT NULL
        state text NOT NULL
        code text
        fingerprint bytea NOT NULL
        key bytea
        reference text
        result jsonb
        error text""",
    "senders": """
        name text NOT NULL""",
    "shards": """
        sender text NOT NULL
        shard smallint NOT NULL""",
    "inbox": f"""
        n bigint NOT NULL GENERATED ALWAYS
        at {_TIME} NOT NULL DEFAULT now()
        id text COLLATE "C" NOT NULL
        type text NOT NULL
        sender text NOT NULL
        state text NOT NULL
        code text
        reference text
        result jsonb
        error text""",
    "all_requests": f"""
        id text COLLATE "C"
        type text
        sender text
        state text
        code text
        result jsonb
        error text
        sends integer
        created_at {_TIME}
        sent_at {_TIME}
        settled_at {_TIME}
        next_at {_TIME}
        not_before {_TIME}
        key bytea
        reference text
        seq bigint""",
    "schema_version": f"""
        version integer NOT NULL
        name text NOT NULL
        applied_at {_TIME} NOT NULL DEFAULT now()""",
}
_SOON: Final = "autovacuum_vacuum_scale_factor=0.01"
_KNOWN_SOON: Final = "autovacuum_analyze_scale_factor=0.01"
_WITHOUT_REST: Final = "autovacuum_vacuum_cost_delay=0"
_BACKING_OFF: Final = (
    "CASE WHEN ((state = 'unsent'::text) AND (next_at IS NOT NULL))"
    " THEN COALESCE(sha256(key), ''::bytea) ELSE NULL::bytea END"
)
_FUNCTION: Final = re.compile(r"CREATE FUNCTION :schema\.(\w+)\(.*?\bAS \$\$(.*?)\$\$", re.DOTALL)
_NOTE: Final = re.compile(r"--[^\n]*")

COLUMNS: Final = {
    table: dict(line.strip().split(" ", 1) for line in lines.strip().splitlines())
    for table, lines in _COLUMNS.items()
}
"""Table or view -> column -> its definition."""
Key = tuple[str, tuple[str, ...]]
"""A table, and columns that no two of its rows have in common."""
KEYS: Final[frozenset[Key]] = frozenset(
    {("requests", ("id",)), ("finished", ("id",)), ("shards", ("sender", "shard"))}
)
"""Those without which statements fail."""
MORE_KEYS: Final[frozenset[Key]] = frozenset(
    {("requests", ("seq",)), ("senders", ("name",)), ("inbox", ("n",))}
)
INDEXES: Final = {
    "requests_unsent": (
        "what is to be sent",
        "requests btree (sender, shard, seq) WHERE (state = 'unsent'::text)",
    ),
    "requests_backing_off": (
        "what waits behind a row that was refused",
        f"requests btree (sender, ({_BACKING_OFF}), seq) WHERE ({_BACKING_OFF} IS NOT NULL)",
    ),
    "requests_sent": (
        "what waits for an answer",
        (
            "requests btree (sender, sent_at, seq)"
            " WHERE (state = ANY (ARRAY['sent'::text, 'unanswered'::text]))"
        ),
    ),
    "requests_dead": (
        "a dead letter",
        (
            "requests btree (seq)"
            " WHERE (state = ANY (ARRAY['unanswered'::text, 'undeliverable'::text]))"
        ),
    ),
    "finished_settled_at": ("what is to be pruned", "finished btree (settled_at)"),
    "finished_conflicts": (
        "a conflict",
        (
            "finished btree (seq)"
            " WHERE ((state = 'undeliverable'::text) AND (code = 'conflict'::text))"
        ),
    ),
}
"""Index -> what takes the longer to find without it the larger its table is, and its definition."""
STATES: Final = (
    "CHECK ((state = ANY (ARRAY['unsent'::text, 'sent'::text, 'unanswered'::text,"
    " 'undeliverable'::text])))"
)
"""What states an open row may have."""
OPTIONS: Final = {
    "requests": (
        _SOON, _KNOWN_SOON, _WITHOUT_REST, "autovacuum_vacuum_insert_scale_factor=0.05",
    ),
    "finished": (_SOON, _KNOWN_SOON, _WITHOUT_REST),
    "inbox": (_SOON, _WITHOUT_REST),
}  # fmt: skip
"""Table -> how soon it is cleaned."""
ADDING: Final = "add_requests"
"""The function that writes requests."""
FUNCTIONS: Final = {
    ADDING: "given json -> text plan_cache_mode=force_custom_plan",
    "wake_relays": " -> trigger",
}
"""Function -> what it takes, returns and sets."""


@functools.cache
def function_bodies(schema: str) -> dict[str, str]:
    """Function -> its body, as the files make it; plain."""
    whole = "\n".join(migration.text for migration in outbox_migrations())
    return {name: plain_body(in_schema(body, schema)) for name, body in _FUNCTION.findall(whole)}


def plain_body(body: str) -> str:
    """Without comments and quotes, and with one blank for each space: tools lay it out anew."""
    return " ".join(_NOTE.sub("", body).replace('"', "").split())
