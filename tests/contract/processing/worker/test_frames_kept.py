"""What a handler that failed had in its variables is free when its chunk is over."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from processing import Request
from stack import Stack
from tests.support.each_kind import each_kind
from tests.support.executor import Bench, bench_with_effects


class Large:
    """Stands for what takes much memory."""


class Failing:
    """Raises what it is told to, with something large at hand."""

    def __init__(self) -> None:
        self.made: list[weakref.ref[Large]] = []
        self.error: BaseException = MemoryError()

    def __call__(self, request: Request[Any]) -> None:
        large = Large()
        self.made.append(weakref.ref(large))
        try:
            int("the first one")
        except ValueError:
            raise self.error  # noqa: B904 - what led to it has frames, too


@pytest.fixture
def failing() -> Failing:
    return Failing()


@pytest.fixture
def bench(stack: Stack, schema: str, failing: Failing) -> Iterator[Bench]:
    with bench_with_effects(each_kind(failing), stack.database, schema) as made:
        yield made


@pytest.fixture
def no_collector() -> Iterator[None]:
    """As in a worker that has nothing to do."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("kind", ["one", "piped", "plain", "pure", "charge", "many", "more"])
def test_nothing_is_kept(bench: Bench, failing: Failing, kind: str) -> None:
    bench.run(bench.record("a", kind, {}), bench.record("b", kind, {}))
    assert len(failing.made) >= 1
    assert [one() for one in failing.made if one() is not None] == []
