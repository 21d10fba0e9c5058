"""The whole service with a database user that may do what docs/deployment.md says, or less."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from consumer.admin.store_checks import check_database, privileges_missing
from consumer.config.loader import load_settings
from feedback.journal.privileges import Use
from stack import Stack
from tests.support.service import WAIT, Bench, Raw
from tests.support.waiting import eventually

DOCS = Path(__file__).parents[2] / "docs" / "deployment.md"
# Half an hour from now and every hour before and after: never while a test runs.
CRON = f"{(datetime.now(UTC).minute + 30) % 60} * * * *"


@pytest.fixture
def user(stack: Stack, bench: Bench) -> Iterator[str]:
    """A user with the rights that the docs list, named as the schema; instances connect as it."""
    name = bench.schema
    at = conninfo_to_dict(stack.database)
    section = DOCS.read_text().partition("## The database user")[2]
    [grants] = re.findall(r"```sql\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)
    grants = grants.replace("DATABASE shop", f'DATABASE "{at["dbname"]}"')
    grants = grants.replace(" oncepool", f" {name}").replace("TO consumer", f"TO {name}")
    bench.query(f"CREATE ROLE {name} LOGIN PASSWORD 'consumer'")
    bench.query(grants)
    bench.query(f"GRANT INSERT ON {bench.table} TO {name}")
    url = f"postgresql://{name}:consumer@{at['host']}:{at['port']}/{at['dbname']}"
    more = {"DATABASE_URL": url, "APP": "tests.support.granted_app:app"}
    bench.environment |= {f"ONCEPOOL_{key}": value for key, value in more.items()}
    bench.environment["TEST_CRON"] = CRON
    yield name
    for instance in bench.instances:
        instance.close()
    bench.query(f"DROP OWNED BY {name} CASCADE")
    bench.query(f"DROP ROLE {name}")


def test_what_the_docs_list_is_enough(bench: Bench, user: str, topic: Callable[..., str]) -> None:
    bench.query(
        f"INSERT INTO {bench.schema}.schedules (name, type, cron, tz, missed, decided_until) VALUES"
        f" ('hourly', 'report', '{CRON}', 'UTC', 'all', now() - interval '2 hours')"
    )
    results = {"ONCEPOOL_KAFKA_RESULTS_TOPIC": topic()}
    instance = bench.start(**results)
    payload = {"table": bench.table, "sku": "a"}
    kinds = ("effect", "again", "counted", "computed", "external", "rejects")
    ids = [bench.client.submit(kind, payload) for kind in kinds]
    Raw(bench).send("bad", {"ce_id": b"bad"}, b"{}")
    ends = [str(bench.client.wait(request, WAIT).state) for request in ids]
    assert ends == ["done"] * 5 + ["rejected"], instance.log
    ticks = f"SELECT count(*) FROM {bench.schema}.requests WHERE type = 'report' AND state = 'done'"
    eventually(lambda: bench.query(ticks) == [(2,)], WAIT, lambda: instance.log)
    for table, wanted in (("dead_letters", 1), ("results", 0), ("attempts", 1)):
        count = f"SELECT count(*) FROM {bench.schema}.{table}"
        eventually(lambda q=count, n=wanted: bench.query(q) == [(n,)], WAIT, lambda: instance.log)  # type: ignore[misc]
    eventually(lambda: bench.query(f"SELECT sum(n) > 5 FROM {bench.schema}.counters") == [(True,)])
    assert instance.health("/readyz")[0] == 200
    assert instance.stop() == 0
    assert "permission denied" not in instance.log
    settings = load_settings({}, environ=bench.environment | results)
    assert {finding.state for finding in check_database(settings)} == {"ok"}
    assert privileges_missing(settings, list(Use)) == []


@pytest.mark.parametrize(
    "right,table,kind",
    [
        ("INSERT", "requests", "effect"),
        pytest.param("INSERT", "attempts", "again", marks=pytest.mark.long),
        pytest.param("SELECT, INSERT, UPDATE", "coalesced", "counted", marks=pytest.mark.long),
        pytest.param("SELECT", "requests", "effect", marks=pytest.mark.long),
        pytest.param("UPDATE", "requests", "again", marks=pytest.mark.long),
        pytest.param("INSERT", "requests", "external", marks=pytest.mark.long),
    ],
)
def test_a_right_that_is_taken_away_fails_no_request(
    bench: Bench, user: str, right: str, table: str, kind: str
) -> None:
    instance = bench.start()
    first = bench.client.submit(kind, {"table": bench.table, "sku": "first"})
    assert bench.client.wait(first, WAIT).state == "done", instance.log
    eventually(lambda: instance.health("/readyz")[0] == 200, WAIT, lambda: instance.log)

    table = f"{bench.schema}.{table}"
    bench.query(f"REVOKE {right} ON {table} FROM {user}")
    ids = [f"k{n}" for n in range(200)]

    def send() -> None:
        for n, request in enumerate(ids):
            payload = {"table": bench.table, "sku": str(n)}
            bench.client.submit(kind, payload, request_id=request)
        bench.client.flush()

    send()
    eventually(lambda: "database" in bench.said()["paused"], WAIT, lambda: instance.log)
    eventually(lambda: bench.said()["in_hand"] <= 10, WAIT, lambda: str(bench.facts()))
    instance.says(f"user {user} lacks {right} on {table}")
    assert instance.health("/readyz")[1]["database"] is False
    found = [status for status in bench.statuses(ids) if status is not None]
    states = {(status.state, status.code) for status in found}
    assert not {code for state, code in states if state == "failed"} - {"database_unavailable"}
    assert not {state for state, _ in states} & {"done", "dead", "in_doubt"}, states
    settings = load_settings({}, environ=bench.environment)
    named = [*check_database(settings), *privileges_missing(settings, [Use.COALESCING])]
    assert [f"lacks {right} on {table}" in f.detail for f in named if f.state == "wrong"] == [True]

    bench.query(f"GRANT {right} ON {table} TO {user}")
    eventually(lambda: instance.health("/readyz")[0] == 200, WAIT, lambda: instance.log)
    send()
    for request in ids:
        assert bench.client.wait(request, WAIT).state == "done", instance.log
    if kind != "external":
        bench.check_books({first, *ids})
    assert "handler_error" not in {code for (code,) in bench.query(CODES.format(bench.schema))}
    assert instance.stop() == 0


CODES = "SELECT code FROM {0}.requests UNION SELECT code FROM {0}.counters WHERE state = 'failed'"


def test_rights_that_nothing_here_needs_stop_nobody(bench: Bench, user: str) -> None:
    bench.query(f"REVOKE ALL ON {bench.schema}.results, {bench.schema}.schedules FROM {user}")
    bench.query(f"REVOKE ALL ON {bench.schema}.coalesced FROM {user}")
    bench.query(f"REVOKE DELETE ON {bench.schema}.requests, {bench.schema}.attempts FROM {user}")
    instance = bench.start(ONCEPOOL_APP="tests.support.plain_app:app")
    request = bench.client.submit("again", {"table": bench.table})
    assert bench.client.wait(request, WAIT).state == "done", instance.log
    assert instance.health("/readyz")[0] == 200
    settings = load_settings({}, environ=bench.environment)
    assert {finding.state for finding in check_database(settings)} == {"ok"}
    assert instance.stop() == 0
