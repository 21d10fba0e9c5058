"""What only a server can do to a store, or with it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from feedback.contract.states import State
from feedback.errors import StoreUnavailable
from feedback.status.opening import open_store
from feedback.status.redis_store import RedisStatusStore
from tests.support.private_valkey import PrivateValkey
from tests.support.proxy import Proxy
from tests.support.statuses import AT, standing, write

_numbers = itertools.count()


@pytest.fixture
def own(tmp_path: object, valkey: PrivateValkey) -> Iterator[RedisStatusStore]:
    store = RedisStatusStore(valkey.url, f"test{next(_numbers)}", timeout=30.0)
    yield store
    store.close()


def test_the_key_and_value_of_the_contract(own: RedisStatusStore, valkey: PrivateValkey) -> None:
    own.write([write("a", State.DONE, ttl=77)])
    with valkey.client() as client:
        key = f"{own.prefix}:status:a"
        assert client.get(key) == write("a", State.DONE).value
        assert 17 <= client.ttl(key) <= 77


def test_a_server_that_forgot_the_script_gets_it_again(
    own: RedisStatusStore, valkey: PrivateValkey
) -> None:
    with valkey.client() as client:
        for run in range(3):
            client.script_flush()
            own.write([write("a", State.RUNNING, run), write("b", State.RUNNING, run)])
    assert standing(own, "a") == standing(own, "b") == ("running", 2, "ok")


def test_what_is_not_final_goes_by_one_call_for_many(
    own: RedisStatusStore, valkey: PrivateValkey
) -> None:
    with valkey.client() as client:
        client.config_resetstat()
        own.write([write(f"n{n}", State.RUNNING) for n in range(250)])
        stats = client.info("commandstats")
    assert [stats[f"cmdstat_{name}"]["calls"] for name in ("eval", "evalsha")] == [1, 2]


@pytest.mark.parametrize("foreign", [b"", b"x", b"{}", b'{"v": "000019"}'])
def test_a_foreign_value_is_nothing_and_is_replaced(
    own: RedisStatusStore, valkey: PrivateValkey, foreign: bytes
) -> None:
    with valkey.client() as client:
        client.set(f"{own.prefix}:status:a", foreign)
    assert own.read(["a"]) == [None]
    own.write([write("a", State.RUNNING)])
    assert standing(own, "a") == ("running", 1, "ok")


def test_what_is_no_status_is_not_dropped(own: RedisStatusStore, valkey: PrivateValkey) -> None:
    with valkey.client() as client:
        client.hset(f"{own.prefix}:status:hash", "v", "1")
        client.set(f"{own.prefix}:status:text", '{"at":"1970-01-01T00:00:00Z"}')
        own.write([write("a", State.DONE)])
        own.drop(["hash", "text", "a"], AT + timedelta(hours=1))
        assert sorted(client.keys(f"{own.prefix}:status:*")) == [
            f"{own.prefix}:status:{name}".encode() for name in ("hash", "text")
        ]


def test_a_key_of_another_kind_is_replaced(own: RedisStatusStore, valkey: PrivateValkey) -> None:
    with valkey.client() as client:
        client.rpush(f"{own.prefix}:status:a", "x")
    own.write([write("a", State.RUNNING)])
    assert standing(own, "a") == ("running", 1, "ok")


def test_no_memory_is_an_error_not_a_silent_loss(
    own: RedisStatusStore, valkey: PrivateValkey
) -> None:
    with valkey.client() as client:
        client.config_set("maxmemory", 1)
        try:
            with pytest.raises(StoreUnavailable, match="refused 3 of 3"):
                own.write([write(name, State.DONE) for name in "abc"])
        finally:
            client.config_set("maxmemory", 0)
    own.write([write("a", State.DONE)])
    assert standing(own, "a") == ("done", 1, "ok")


def test_a_channel_that_may_not_be_published_to_costs_no_status(valkey: PrivateValkey) -> None:
    with valkey.client() as client:
        client.acl_setuser(
            "limited", enabled=True, passwords=["+pw"], categories=["+@all"], keys=["*"],
            reset_channels=True,
        )  # fmt: skip
    url = valkey.url.replace("//", "//limited:pw@")
    store = RedisStatusStore(url, f"test{next(_numbers)}", timeout=30.0)
    store.write([write("a", State.DONE, reply_to="forbidden"), write("b", State.DONE)])
    assert standing(store, "b") == ("done", 1, "ok")
    store.close()


def test_a_server_that_cannot_set_many_keys_at_once_sets_each(valkey: PrivateValkey) -> None:
    with valkey.client() as client:
        client.acl_setuser(
            "older", enabled=True, passwords=["+pw"], categories=["+@all"], keys=["*"],
            commands=["-msetex"],
        )  # fmt: skip
    url = valkey.url.replace("//", "//older:pw@")
    store = RedisStatusStore(url, f"test{next(_numbers)}", timeout=30.0)
    store.write([write("a", State.DONE)])
    for run in (1, 2):
        store.write(
            [
                *(write(f"n{n}", State.DONE, run, final=True) for n in range(3)),
                write("a", State.FAILED, 5),
            ]
        )
        assert [standing(store, f"n{n}") for n in range(3)] == [("done", run, "ok")] * 3
    assert standing(store, "a") == ("done", 1, "ok")
    store.close()


def test_a_server_that_is_away_and_comes_back(tmp_path_factory: pytest.TempPathFactory) -> None:
    server = PrivateValkey(tmp_path_factory.mktemp("away"))
    store = RedisStatusStore(server.url, timeout=30.0)
    hints = store.subscribe("mine")
    store.write([write("a", State.DONE)])
    try:
        server.stop()
        for attempt in (
            lambda: store.write([write("a", State.DONE)]),
            lambda: store.read(["a"]),
            lambda: store.subscribe("mine"),
            lambda: hints.receive(0.5),
        ):
            with pytest.raises(StoreUnavailable):
                attempt()
        hints.close()
        server.start()
        store.write([write("a", State.RUNNING)])
        assert standing(store, "a") == ("running", 1, "ok")
    finally:
        store.close()
        server.stop()


def test_a_primary_that_became_a_replica_is_left_for_who_has_its_name_now(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    old, new = (PrivateValkey(tmp_path_factory.mktemp(name)) for name in ("old", "new"))
    with Proxy.of(old.url) as name, old.client() as client:
        store = RedisStatusStore(name.before(old.url), timeout=30.0)
        try:
            store.write([write("a", State.RUNNING)])
            # A failover: the connection stays, the name leads to the other server.
            client.replicaof("127.0.0.1", new.port)
            name.lead_to(new.url)
            with pytest.raises(StoreUnavailable, match="read only replica"):
                store.write([write("a", State.DONE)])
            store.write([write("a", State.DONE)])
            assert standing(store, "a") == ("done", 1, "ok")
        finally:
            store.close()
            new.stop()
            old.stop()


def test_a_server_that_hangs_costs_a_bounded_time_and_replies_stay_in_step(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    server = PrivateValkey(tmp_path_factory.mktemp("hangs"))
    store = RedisStatusStore(server.url, timeout=0.1)
    try:
        store.write([write("a", State.DONE), write("b", State.RUNNING)])
        server.pause()
        for attempt in (
            lambda: store.write([write("c", State.DONE)]),
            lambda: store.read(["a", "b"]),
            lambda: store.subscribe("mine"),
        ):
            with pytest.raises(StoreUnavailable):
                attempt()
        server.resume()
        for _ in range(20):
            read = store.read(["b", "a"])
            assert [status and status.id for status in read] == ["b", "a"]
    finally:
        server.resume()
        store.close()
        server.stop()


def test_many_threads_share_a_few_connections(valkey: PrivateValkey) -> None:
    store = RedisStatusStore(valkey.url, f"test{next(_numbers)}", max_connections=4, timeout=30.0)
    store.write([write("a", State.DONE)])
    answers: list[object] = []

    def ask() -> None:
        for _ in range(5):
            answers.extend(store.read(["a"]))

    threads = [threading.Thread(target=ask) for _ in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 300
    assert None not in answers
    with valkey.client() as client:
        assert len(client.client_list()) < 20
    store.close()


def test_a_url_that_is_none() -> None:
    with pytest.raises(ValueError):
        RedisStatusStore("http://localhost")


def test_the_url_says_which_store_it_is(valkey: PrivateValkey) -> None:
    store = open_store(valkey.url, f"test{next(_numbers)}", timeout=1.0)
    assert isinstance(store, RedisStatusStore)
    assert store.read(["a"]) == [None]
    store.close()
    for url in ("http://localhost", "redis:localhost", "localhost:6379", ""):
        with pytest.raises(ValueError, match="none of redis://"):
            open_store(url)
