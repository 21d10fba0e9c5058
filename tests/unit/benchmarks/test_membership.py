import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, KafkaException

from benchmarks import membership
from benchmarks.load import PARTITIONS
from benchmarks.membership import shares, shares_of


@pytest.mark.parametrize(
    "members, shares", [(1, [12]), (2, [6, 6]), (5, [2, 2, 2, 3, 3]), (8, [1] * 4 + [2] * 4)]
)
def test_partitions_are_shared_evenly(members: int, shares: list[int]) -> None:
    assert shares_of(members) == shares
    assert sum(shares) == PARTITIONS


def answering(found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def result(_timeout: float) -> Any:
        if isinstance(found, Exception):
            raise found
        return found

    class FakeAdmin:
        def __init__(self, _settings: Any) -> None: ...

        def describe_consumer_groups(self, groups: list[str]) -> dict[str, Any]:
            return {groups[0]: SimpleNamespace(result=result)}

    monkeypatch.setattr(membership, "AdminClient", FakeAdmin)
    monkeypatch.setattr(sys, "argv", ["membership", "kafka:1", "group"])


def group_of(state: ConsumerGroupState, *members: int) -> Any:
    of = [SimpleNamespace(assignment=SimpleNamespace(topic_partitions=[0] * n)) for n in members]
    return SimpleNamespace(state=state, members=of)


@pytest.mark.parametrize(
    "state, told", [(ConsumerGroupState.STABLE, "[5,7]"), (ConsumerGroupState.DEAD, "[]")]
)
def test_a_group_at_rest_says_what_each_member_has(
    state: ConsumerGroupState, told: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    answering(group_of(state, 7, 5), monkeypatch)
    membership.main()
    assert capsys.readouterr().out == told


def test_a_coordinator_that_says_nothing_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(KafkaException("away"), monkeypatch)
    with pytest.raises(SystemExit):
        membership.main()


def test_who_asks_outlives_the_abort_of_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    run = subprocess.run

    def abort(_command: list[str], **options: Any) -> Any:
        return run([sys.executable, "-c", "import os; os.abort()"], **options)

    monkeypatch.setattr(subprocess, "run", abort)
    assert shares("kafka:1", "group") == []
