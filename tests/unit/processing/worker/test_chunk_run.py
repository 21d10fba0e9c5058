"""What a recall takes of a chunk, and what it leaves."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from feedback.contract.record import KEY, Record
from processing.worker.chunk_run import ChunkRun
from tests.support.executor import FakeGate

A, B = b"a", b"b"


def chunk_of(keys: Sequence[bytes | None]) -> ChunkRun:
    records: list[Record] = [
        ("topic", 0, offset, 0, key, b"{}", [], "type", None) for offset, key in enumerate(keys)
    ]
    chunk = ChunkRun(1, "token", records, None, FakeGate())
    chunk.lane_of = lambda record: record[KEY]
    return chunk


@pytest.mark.parametrize(
    "keys, read, stay",
    [
        ([A, A], 1, [0, 1]),
        ([A, B, A, B, A], 2, [0, 2]),
        ([A, B, B, A], 0, [0]),
        ([None, A, None, None], 2, [2]),
    ],
)
def test_what_is_read_stays_with_what_comes_before_it_in_its_lane(
    keys: list[bytes | None], read: int, stay: list[int]
) -> None:
    chunk = chunk_of(keys)
    chunk.read(read, None)
    gone = [index for index in range(len(keys)) if index not in stay]
    assert chunk.recall() == gone
    chunk.clear()
    assert [index for index in range(len(keys)) if chunk.start(index, None)] == stay


def test_what_has_stayed_goes_with_the_next_recall_as_long_as_it_was_not_started() -> None:
    chunk = chunk_of([A, A, A])
    chunk.read(1, None)
    assert chunk.recall() == [2]
    chunk.read(2, None)  # it is another's already, and keeps nothing
    assert chunk.recall() == [0, 1]
