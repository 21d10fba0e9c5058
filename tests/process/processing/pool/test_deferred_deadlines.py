"""Deferred triggers that hang: the deadlines of requests hold for them, too."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.workers import Workers

Make = Callable[..., Workers]

HANGS = """
CREATE FUNCTION {s}.hang() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_sleep(600); RETURN NULL; END $$;;
CREATE CONSTRAINT TRIGGER hangs AFTER INSERT ON {s}.effects DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW WHEN (NEW.id = 'bad') EXECUTE FUNCTION {s}.hang()
"""
"""With the end of its segment, and of the transaction."""


@pytest.mark.parametrize("kind", ["fragile", "fragile.batch"])
def test_a_deferred_trigger_that_hangs_is_the_end_of_its_request_alone(
    make: Make, kind: str
) -> None:
    workers = make()
    for statement in HANGS.replace("{s}", workers.schema).split(";;"):
        workers.query(statement)
    workers.start()
    workers.warm(kind=kind)
    workers.submit("before", "bad", "after", kind=kind, ce_timeout="1")
    workers.finish(30)
    done = ("done", "ok")
    assert workers.states() == {"before": done, "bad": ("failed", "timeout"), "after": done}
    workers.check_effects()
