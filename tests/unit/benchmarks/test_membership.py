import pytest

from benchmarks.load import PARTITIONS
from benchmarks.membership import shares_of


@pytest.mark.parametrize(
    "members, shares", [(1, [12]), (2, [6, 6]), (5, [2, 2, 2, 3, 3]), (8, [1] * 4 + [2] * 4)]
)
def test_partitions_are_shared_evenly(members: int, shares: list[int]) -> None:
    assert shares_of(members) == shares
    assert sum(shares) == PARTITIONS
