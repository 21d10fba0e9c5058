"""Limits as they are kept: what instances and operators may rely on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import redis

from feedback.errors import InvalidLimit, LimitsUnclear, StoreUnavailable
from processing.cluster import limits
from processing.cluster.instances import connect
from processing.cluster.limits import (
    ClusterLimits,
    RedisLimitsStore,
    Setting,
    TypeLimit,
)
from stack import Stack
from tests.support.proxy import Link, Proxy

WORKERS, ALL_WORKERS = Setting("workers"), Setting("workers_total")
PAY = "payment.create"


@dataclass
class Part:
    """A store, and the same one as somebody else sees it."""

    store: RedisLimitsStore
    other: RedisLimitsStore


@pytest.fixture
def part(stack: Stack, prefix: str) -> Iterator[Part]:
    with connect(stack.redis) as client, connect(stack.redis) as another:
        yield Part(RedisLimitsStore(client, prefix), RedisLimitsStore(another, prefix))
        client.delete(f"{prefix}:limits")


def test_nothing_is_limited_where_nothing_was_set(part: Part) -> None:
    assert part.store.read() == ClusterLimits()


def test_what_was_set_is_read_by_others(part: Part) -> None:
    part.store.change(
        {
            WORKERS: 6,
            ALL_WORKERS: 24,
            Setting("total", PAY): 8,
            Setting("instance", PAY): 2,
            Setting("paused", "a:b ü"): 1,
        }
    )
    types = {PAY: TypeLimit(total=8, instance=2), "a:b ü": TypeLimit(paused=True)}
    assert part.other.read() == ClusterLimits(6, 24, types)


def test_one_figure_leaves_the_others(part: Part) -> None:
    part.store.change({Setting("total", PAY): 8, WORKERS: 2})
    part.other.change({Setting("instance", PAY): 2})
    part.other.change({Setting("total", PAY): 9})
    assert part.store.read() == ClusterLimits(2, None, {PAY: TypeLimit(total=9, instance=2)})


def test_taken_away_is_as_never_set(part: Part) -> None:
    settings = {Setting("total", PAY): 8, Setting("paused", PAY): 1, WORKERS: 3}
    part.store.change(settings)
    part.store.change(dict.fromkeys(settings))
    part.store.change(dict.fromkeys(settings))
    assert part.store.read() == ClusterLimits()


def test_one_change_may_set_and_take_away(part: Part) -> None:
    part.store.change({Setting("total", PAY): 8})
    part.store.change({Setting("total", PAY): None, Setting("instance", PAY): 1})
    assert part.store.read().types == {PAY: TypeLimit(instance=1)}


def test_an_empty_change_changes_nothing(part: Part) -> None:
    part.store.change({})
    assert part.store.read() == ClusterLimits()


@pytest.mark.parametrize(
    "setting,figure,message",
    [
        (Setting("total", PAY), 0, "from 1 to 1000000; to run none of a type, pause it"),
        (Setting("instance", PAY), -2, "a whole number"),
        (Setting("total", PAY), 1_000_001, "a whole number"),
        (Setting("total", PAY), True, "a whole number"),
        (Setting("total", PAY), 2.5, "a whole number"),
        (Setting("paused", PAY), 2, "from 1 to 1"),
        (WORKERS, 0, "from 1 to 1024"),
        (WORKERS, 1025, "from 1 to 1024"),
        (Setting("total"), 3, "'total' limits no instance as a whole: workers, workers_total"),
        (Setting("workers", PAY), 3, "'workers' limits no type: total, instance, paused"),
        (Setting("total", ""), 3, "type is empty"),
        (Setting("total", "x" * 201), 3, "at most 200"),
        (Setting("total", "a\nb"), None, "control character"),
        (Setting("paused", "payment.*"), 1, "'payment.*' is none, name each by itself"),
    ],
)
def test_what_can_not_stand_is_refused_whole(
    part: Part, setting: Setting, figure: int, message: str
) -> None:
    with pytest.raises(InvalidLimit, match=message.replace("(", r"\(")):
        part.store.change({ALL_WORKERS: 4, setting: figure})
    assert part.store.read() == ClusterLimits()


def test_two_who_set_at_once_lose_nothing(part: Part) -> None:
    def change(store: RedisLimitsStore, kind: str) -> None:
        for n in range(1, 51):
            store.change({Setting("total", kind): n})

    threads = [
        threading.Thread(target=change, args=(store, kind))
        for store, kind in ((part.store, "a"), (part.other, "b"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert part.store.read().types == {"a": TypeLimit(total=50), "b": TypeLimit(total=50)}


def test_what_redis_has_lost_is_put_back_beside_what_was_set_since(
    part: Part, stack: Stack, prefix: str
) -> None:
    """Also where the first thing after the loss is an operator's change."""
    a, b, c = (Setting("total", kind) for kind in "abc")
    part.store.change({a: 8, b: 7, c: 6, Setting("paused", "d"): 1})
    held = part.store.read()
    with redis.Redis.from_url(stack.redis) as client:
        client.delete(f"{prefix}:limits")
    part.store.change({a: 1, b: None})
    between = part.store.read()
    assert between.types == {"a": TypeLimit(total=1)}
    assert between.unread == ()

    # Two instances have seen the loss; one that was just started has not.
    assert between.lacks(held)
    put = part.store.restore(held)
    assert (sorted(put), part.other.restore(held)) == (["paused:d=1", "total:c=6"], [])
    assert part.other.restore(between) == []
    restored = part.store.read()
    assert restored.types == {
        "a": TypeLimit(total=1), "c": TypeLimit(total=6), "d": TypeLimit(paused=True)
    }  # fmt: skip
    assert not restored.lacks(held)

    # From now on what is taken away is, as ever.
    part.store.change({c: None, b: 5, Setting("paused", "d"): None})
    part.store.change({a: None, b: None})
    emptied = part.store.read()
    assert emptied == ClusterLimits()
    assert not emptied.lacks(restored)
    assert part.store.restore(restored) == []


def test_what_redis_has_as_it_was_long_ago_is_put_right(
    part: Part, stack: Stack, prefix: str
) -> None:
    """Each instance puts what it knows; what an operator sets after the loss stays in any case."""
    a, b, c, pause = *(Setting("total", kind) for kind in "abc"), Setting("paused", "t")
    part.store.change({pause: 1, a: 8, b: 1, c: 3})
    part.store.change({pause: None})
    with redis.Redis.from_url(stack.redis) as client:
        backup = client.dump(f"{prefix}:limits")
        assert isinstance(backup, bytes)
        part.store.change({pause: 1, a: 5})
        early = part.store.read()
        part.store.change({a: 2, b: 2, c: None})
        held = part.store.read()
        client.restore(f"{prefix}:limits", 0, backup, replace=True)
    for n in range(4, 10):
        part.store.change({b: n})
    older = part.store.read()
    put = [store.restore(one) for store, one in ((part.other, early), (part.store, held))]
    put.append(part.other.restore(early))

    assert part.store.read().types == {
        "a": TypeLimit(total=2), "b": TypeLimit(total=9), "t": TypeLimit(paused=True)
    }  # fmt: skip
    assert [sorted(fields) for fields in put] == [
        ["paused:t=1", "total:a=5"], ["total:a=2", "total:c=none"], []
    ]  # fmt: skip
    assert older.lacks(early)
    assert older.lacks(held)
    assert not part.store.read().lacks(held)


@pytest.mark.parametrize("steps", [[{"b": 3}, {"b": None, "a": None}], [{"a": 3}, {"a": None}]])
def test_what_was_set_and_taken_away_since_a_loss_does_not_come_back(
    part: Part, stack: Stack, prefix: str, steps: list[dict[str, int | None]]
) -> None:
    part.store.change({Setting("total", "a"): 8, Setting("total", "b"): 7, WORKERS: 2})
    held = part.store.read()
    with redis.Redis.from_url(stack.redis) as client:
        client.delete(f"{prefix}:limits")
    for step in steps:
        part.store.change({Setting("total", kind): n for kind, n in step.items()})
    assert part.store.restore(held)
    restored = part.store.read()
    assert restored.workers == 2
    assert "a" not in restored.types
    assert ("b" in restored.types) is ("b" not in steps[0])


class Deaf(Proxy):
    """Breaks the connection of whoever changes limits, before that is heard."""

    def _as_passed_on(self, link: Link, unit: bytes, *, up: bool) -> bytes:
        if up and b"math.max" in unit:
            raise OSError("not passed on")
        return super()._as_passed_on(link, unit, up=up)


def test_a_change_whose_answer_is_lost_is_looked_for(
    part: Part, stack: Stack, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LOOK", 0.1)
    with Proxy.of(stack.redis) as proxy, connect(proxy.before(stack.redis)) as client:
        store = RedisLimitsStore(client, prefix)
        lost = proxy.lose_answer(b"math.max")
        store.change({WORKERS: 6, Setting("total", PAY): None})
        assert lost.fulfilled.is_set()
        assert part.other.read() == ClusterLimits(6)
        proxy.wish(lambda data: b"math.max" in data, cut=True)
        with pytest.raises(LimitsUnclear, match="could not be looked at"):
            store.change({WORKERS: 7})
        assert part.other.read() == ClusterLimits(7)
    with Deaf.of(stack.redis) as deaf, connect(deaf.before(stack.redis)) as client:
        with pytest.raises(LimitsUnclear, match="do not show it"):
            RedisLimitsStore(client, prefix).change({WORKERS: 8})
        assert part.other.read() == ClusterLimits(7)


def test_away_is_said() -> None:
    with connect("redis://127.0.0.1:1/0") as client:
        store = RedisLimitsStore(client, "p")
        with pytest.raises(StoreUnavailable):
            store.read()
        with pytest.raises(StoreUnavailable):
            store.change({WORKERS: 2})


def test_what_others_wrote_into_the_hash_limits_nothing_and_is_named(
    stack: Stack, prefix: str
) -> None:
    with redis.Redis.from_url(stack.redis) as client:
        client.hset(
            f"{prefix}:limits",
            mapping={"workers": "many", "total:": "3", "nonsense": "1", "total:a": "4", b"\xff": 1},
        )
        read = RedisLimitsStore(client, prefix).read()
        assert read.types == {"a": TypeLimit(total=4)}
        assert read.workers is None
        assert set(read.unread) == {"workers", "total:", "nonsense", "�"}
        client.delete(f"{prefix}:limits")


def test_another_kind_of_key_is_said(stack: Stack, prefix: str) -> None:
    with redis.Redis.from_url(stack.redis) as client:
        client.set(f"{prefix}:limits", "x", ex=60)
        with pytest.raises(StoreUnavailable, match="WRONGTYPE"):
            RedisLimitsStore(client, prefix).read()
