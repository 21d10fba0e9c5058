"""What `oncepool check` says of a real PostgreSQL and Valkey that answer and do not serve."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from consumer.admin.finding import Finding
from consumer.admin.limits import limits_redis
from consumer.admin.store_checks import check_database, check_redis
from consumer.config.loader import load_settings
from consumer.config.settings import Settings
from feedback.errors import StoreUnavailable
from feedback.journal.migrations import migrate
from feedback.status.redis_store import RedisStatusStore
from processing.cluster.limits import RedisLimitsStore, Setting
from tests.support.journal import Journal
from tests.support.own_database import OwnDatabase
from tests.support.private_valkey import PrivateValkey


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[PrivateValkey]:
    own = PrivateValkey(tmp_path)
    yield own
    own.stop()


def settings(**given: Any) -> Settings:
    return load_settings(given, environ={})


def wrong(found: list[Finding]) -> list[tuple[str, str]]:
    return [(one.detail, one.advice) for one in found if one.state == "wrong"]


def fill(valkey: PrivateValkey) -> None:
    with valkey.client() as client:
        client.config_set("maxmemory", 1)


def test_a_database_that_is_read_only_is_wrong(own_database: OwnDatabase) -> None:
    migrate(own_database.url, "oncepool")
    given = settings(database_url=own_database.url, database_schema="oncepool")
    assert not wrong(check_database(given))

    own_database.set_read_only(read_only=True)

    [(detail, advice)] = wrong(check_database(given))
    assert "read-only transaction" in detail
    assert "name the primary in database_url" in advice


def test_a_table_that_is_locked_is_no_database_that_takes_no_writes(journal: Journal) -> None:
    given = settings(database_url=journal.url, database_schema=journal.schema)
    with psycopg.connect(journal.url) as operator:
        operator.execute(f"LOCK TABLE {journal.schema}.dead_letters IN SHARE MODE")
        found = check_database(given)
    assert not wrong(found)
    [warning] = [one for one in found if one.state == "warning"]
    assert f"another session locks {journal.schema}.dead_letters" in warning.detail


@pytest.mark.parametrize("path", ["public", "{}, public"])
def test_a_search_path_with_the_journal_is_told(journal: Journal, path: str) -> None:
    """By default a role's own name comes first, which may be the schema's."""
    there = path.format(journal.schema)
    url = make_conninfo(journal.url, options=f"-c search_path={there.replace(' ', '')}")
    found = check_database(settings(database_url=url, database_schema=journal.schema))
    assert not wrong(found)
    told = [one for one in found if one.state == "warning"]
    assert len(told) == (path != "public")
    for one in told:
        assert f"has {journal.schema}, where the journal is" in one.detail
        assert "ALTER ROLE oncepool SET search_path = public" in one.advice


def test_a_role_whose_statements_are_ended_is_told_so(journal: Journal) -> None:
    url = make_conninfo(journal.url, options="-c statement_timeout=200ms")
    given = settings(database_url=url, database_schema=journal.schema)
    with psycopg.connect(journal.url) as other:
        other.execute(f"LOCK TABLE {journal.schema}.dead_letters")
        [(detail, advice)] = wrong(check_database(given))

    assert "statement timeout" in detail
    assert "statement_timeout of its role" in advice
    assert "start PostgreSQL" not in advice


def test_a_redis_that_is_full_is_wrong(valkey: PrivateValkey) -> None:
    given = settings(redis_url=valkey.url)
    assert not wrong(check_redis(given))
    with valkey.client() as client:
        assert client.dbsize() == 0, "what was tried is gone"

    fill(valkey)

    [(detail, advice)] = wrong(check_redis(given))
    assert detail.startswith("it refused: ")
    assert "maxmemory" in advice


def test_a_redis_that_is_a_replica_is_wrong(valkey: PrivateValkey) -> None:
    with valkey.client() as client:
        client.replicaof("127.0.0.1", str(valkey.port))

    [(detail, advice)] = wrong(check_redis(settings(redis_url=valkey.url)))
    assert detail.startswith("it refused: ")
    assert "name the primary in redis_url" in advice


def test_a_user_that_may_not_write_is_told_so(valkey: PrivateValkey) -> None:
    with valkey.client() as client:
        client.acl_setuser(
            "reader", enabled=True, passwords=["+hid"], keys=["*"], categories=["+@all", "-@write"]
        )
    url = valkey.url.replace("redis://", "redis://reader:hid@")

    [(detail, advice)] = wrong(check_redis(settings(redis_url=url)))
    assert "no permissions" in detail.lower()
    assert "rights of its user" in advice

    [(_, advice)] = wrong(check_redis(settings(redis_url=url.replace("hid", "other"))))
    assert "user and password" in advice


def test_a_password_that_redis_does_not_have_is_wrong_for_all_who_connect(
    valkey: PrivateValkey,
) -> None:
    """As it is for those who write statuses."""
    given = settings(redis_url=valkey.url.replace("redis://", "redis://:hid@"))
    with pytest.raises(StoreUnavailable):
        RedisStatusStore(given.redis_url).read(["a"])
    [(_, advice)] = wrong(check_redis(given))
    assert "user and password" in advice
    with pytest.raises(StoreUnavailable) as caught, limits_redis(given) as client:
        RedisLimitsStore(client, given.redis_prefix).change({Setting("paused", "a"): 1})
    assert "redis_url" in str(caught.value)


def test_limits_that_a_full_redis_refuses_are_not_said_to_be_unanswered(
    valkey: PrivateValkey,
) -> None:
    given = settings(redis_url=valkey.url)
    fill(valkey)

    with pytest.raises(StoreUnavailable) as caught, limits_redis(given) as client:
        RedisLimitsStore(client, given.redis_prefix).change({Setting("paused", "a"): 1})

    assert "it refused: " in str(caught.value)
    assert "raise its maxmemory" in str(caught.value)
    assert "answer" not in str(caught.value)
