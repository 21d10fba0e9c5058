"""When garbage is looked for: not while a chunk runs, and right after it."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from processing.worker.garbage import ROOM, room_for

PYTHONS = (700, 10, 10)


@pytest.fixture(autouse=True)
def pythons_own() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*PYTHONS)
    yield
    gc.set_threshold(*before)


def test_a_chunk_has_room_for_what_its_requests_make() -> None:
    with room_for(500):
        assert gc.get_threshold() == (700 + 500 * ROOM, 10, 10)
    assert gc.get_threshold() == PYTHONS


def test_one_that_goes_alone_has_no_more_than_ever() -> None:
    with room_for(1):
        assert gc.get_threshold() == PYTHONS


def test_there_is_as_much_as_ever_after_what_raises() -> None:
    with pytest.raises(KeyError), room_for(2):
        raise KeyError
    assert gc.get_threshold() == PYTHONS


@pytest.mark.parametrize("own", [(0, 10, 10), (50_000, 5, 7)])
def test_what_the_app_has_set_stands(own: tuple[int, int, int]) -> None:
    gc.set_threshold(*own)
    with room_for(100):
        young = own[0] + 100 * ROOM if own[0] else 0
        assert gc.get_threshold() == (young, *own[1:])
    assert gc.get_threshold() == own


def test_what_a_handler_sets_stands_after_its_chunk() -> None:
    with room_for(100):
        gc.set_threshold(9, 8, 7)
    assert gc.get_threshold() == (9, 8, 7)


def test_a_worker_runs_its_chunks_so() -> None:
    """In a process of its own, as what else there is would be counted, too."""
    code = """
import gc, types, weakref
from processing.worker.__main__ import _Worker

class Ring:
    def __init__(self):
        self.me = self

def begin(chunk):
    alive = [[n, {}] for n in range(50 * len(chunk.records))]
    left.append(weakref.ref(Ring()))
    young.append(gc.get_stats()[0]["collections"])

left, young = [], []
chunk = types.SimpleNamespace(records=[()] * 500, recalled_whole=False, taken=500)
gc.collect()
young.append(gc.get_stats()[0]["collections"])
_Worker._run(types.SimpleNamespace(), types.SimpleNamespace(begin=begin), None, chunk, None)
made = [[] for _ in range(2000)]
assert young[0] == young[1], young
assert left[0]() is None
chunk.records = [()]
_Worker._run(types.SimpleNamespace(), types.SimpleNamespace(
    begin=lambda _: [[n] for n in range(2000)] and young.append(gc.get_stats()[0]["collections"])
), None, chunk, None)
assert young[2] > young[1], young
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=100, check=False)
    assert done.returncode == 0
