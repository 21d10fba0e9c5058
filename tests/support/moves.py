"""Holds what tests do with journal rows against the table of allowed moves; why one was refused."""

from __future__ import annotations

import psycopg
from psycopg import sql

from feedback.contract.state_machine import ALLOWED
from feedback.operations.request_actions import TransitionOutcome

_WATCH = """
CREATE TABLE {schema}.moves (start text, "end" text, id text);
CREATE FUNCTION {schema}.note_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.moves VALUES (
        CASE WHEN TG_OP = 'INSERT' THEN NULL ELSE OLD.state END,
        CASE WHEN TG_OP = 'DELETE' THEN NULL ELSE NEW.state END,
        coalesce(NEW.id, OLD.id)
    );
    RETURN NULL;
END $$;
CREATE TRIGGER note_move AFTER INSERT OR DELETE OR UPDATE OF state ON {schema}.requests
    FOR EACH ROW EXECUTE FUNCTION {schema}.note_move();
"""


def watch_moves(database: str, schema: str) -> None:
    """From now on every move of a row of this journal is noted."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(sql.SQL(_WATCH).format(schema=sql.Identifier(schema)))


def forbidden_moves(database: str, schema: str) -> list[tuple[str | None, str | None, str]]:
    """Moves that happened and that the table does not know: (from, to, request id)."""
    query = sql.SQL('SELECT DISTINCT ON (start, "end") start, "end", id FROM {}.moves').format(
        sql.Identifier(schema)
    )
    with psycopg.connect(database, autocommit=True) as connection:
        moves = connection.execute(query).fetchall()
    return [move for move in moves if (move[0], move[1]) not in ALLOWED]


def refusal(outcome: TransitionOutcome) -> str:
    """Why the only request was not moved."""
    assert outcome.moved == []
    (refused,) = outcome.refused
    return refused.reason
