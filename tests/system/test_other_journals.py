"""Two instances of one group that use different journals."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from consumer.admin.store_checks import check_database
from consumer.config.loader import load_settings
from feedback.journal.migrations import migrate
from stack import Stack
from tests.support.service import WAIT, Bench
from tests.support.waiting import eventually

PARTITIONS = 2
TOLD = "instances of this group use another journal"


@pytest.fixture
def other(stack: Stack, schema: str) -> Iterator[str]:
    name = f"{schema}_typo"
    migrate(stack.database, name)
    yield name
    with psycopg.connect(stack.database, autocommit=True) as database:
        database.execute(f"DROP SCHEMA {name} CASCADE".encode())


def test_both_say_so_and_are_not_ready_as_long_as_both_are_there(bench: Bench, other: str) -> None:
    right = bench.start()
    eventually(lambda: right.health("/readyz")[0] == 200, WAIT, lambda: right.log)
    environment = bench.environment | {"ONCEPOOL_DATABASE_SCHEMA": other}
    [found] = [f for f in check_database(load_settings({}, environ=environment))
               if f.state == "wrong"]  # fmt: skip
    assert other in found.detail
    assert f".{bench.schema} (" in found.detail

    wrong = bench.start(ONCEPOOL_DATABASE_SCHEMA=other)
    for one, of_other in ((right, other), (wrong, bench.schema)):
        eventually(lambda i=one: i.health("/readyz")[1]["journal"] is False, WAIT)  # type: ignore[misc]
        assert one.health("/readyz")[0] == 503
        [line] = [line for line in one.log.splitlines() if TOLD in line]
        assert f".{of_other} (" in line.partition("others=")[2]
        assert "[error" in line

    assert wrong.stop() == 0
    eventually(lambda: right.health("/readyz")[0] == 200, WAIT, lambda: right.log)
    twin = bench.start()
    eventually(lambda: twin.health("/readyz")[0] == 200, WAIT, lambda: twin.log)
    bench.shared_out(2, PARTITIONS)
    assert TOLD not in twin.log
    assert twin.stop() == 0
    assert right.stop() == 0
