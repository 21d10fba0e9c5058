"""What commands that move requests share."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from consumer.admin.moving import StatusPublisher
from consumer.commands.operator import move_all
from consumer.config.settings import Settings
from feedback.operations.explanations import Refusal
from feedback.operations.request_actions import AT_ONCE, Moved, TransitionOutcome
from feedback.status.status import StatusWrite

NOW = datetime(2026, 5, 1, tzinfo=UTC)


class Published(StatusPublisher):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__(Settings(redis_url="redis://nowhere"))
        self.ids: list[list[str]] = []

    def publish(self, writes: object) -> None:
        assert isinstance(writes, type(_ for _ in ()))
        self.ids.append([write.id for write in writes if isinstance(write, StatusWrite)])


def moved(id: str) -> Moved:
    return Moved(
        id=id, type="a.b", from_state="dead", state="waiting", code="retried", attempt=1, run=2,
        at=NOW, fingerprint=None, own_fingerprint=False, result=None, error=None, reason=None,
        due_at=NOW, status_ttl=None, headers=None,
    )  # fmt: skip


@pytest.mark.parametrize("count", [1, AT_ONCE, AT_ONCE + 1])
def test_requests_are_moved_in_parts_and_each_part_is_published(count: int) -> None:
    ids = [f"r{n}" for n in range(count)]
    parts: list[list[str]] = []

    def move(batch: Sequence[str]) -> TransitionOutcome:
        parts.append(list(batch))
        refused = [Refusal(one, None, "none") for one in batch if one == "r0"]
        return TransitionOutcome([moved(one) for one in batch if one != "r0"], refused)

    publisher = Published()
    rows, refused = move_all([*ids, *ids], "retry", move, publisher)

    assert parts == [ids[start : start + AT_ONCE] for start in range(0, count, AT_ONCE)]
    assert [row["id"] for row in rows] == ids[1:]
    assert [one.id for one in refused] == ["r0"]
    assert publisher.ids == [[one for one in part if one != "r0"] for part in parts]
