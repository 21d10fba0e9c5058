"""What commands that move requests share."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import orjson
import pytest
import typer

from consumer.admin.journal import JournalContended, JournalUnreachable
from consumer.admin.move_outcome import MoveOutcome
from consumer.admin.moving import StatusPublisher
from consumer.commands.operator import SHOWN, move_all, told
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
    moves = MoveOutcome()
    move_all([*ids, *ids], "retry", move, publisher, moves)

    assert parts == [ids[start : start + AT_ONCE] for start in range(0, count, AT_ONCE)]
    assert [row["id"] for row in moves.rows] == ids[1:]
    assert [one.id for one in moves.refused] == ["r0"]
    assert (moves.unsure, moves.untried) == ([], [])
    assert publisher.ids == [[one for one in part if one != "r0"] for part in parts]


def test_what_was_moved_before_one_breaks_off_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    ids = [f"r{n}" for n in range(3 * AT_ONCE)]

    def move(batch: Sequence[str]) -> TransitionOutcome:
        if "r500" in batch:
            raise JournalUnreachable("the database does not answer")
        return TransitionOutcome([moved(one) for one in batch], [])

    for json in (True, False):
        moves = MoveOutcome()
        with pytest.raises(typer.Exit) as ended, told(moves, "retry", json=json):
            move_all(ids, "retry", move, Published(), moves)
        assert ended.value.exit_code == 1
        out, said = capsys.readouterr()
        if json:
            answer = orjson.loads(out)
            assert [row["id"] for row in answer["moved"]] == ids[:AT_ONCE]
            assert answer["unsure"] == ids[AT_ONCE : 2 * AT_ONCE]
            assert answer["untried"] == ids[2 * AT_ONCE :]
            assert answer["problem"] == "the database does not answer"
        else:
            assert out == f"retry: {AT_ONCE}\n"
        assert "r500: not known whether it was moved; look at it again" in said
        assert f"and {AT_ONCE - SHOWN} more" in said
        assert f"{AT_ONCE} were not tried" in said
        assert "the database does not answer" in said


def test_what_the_database_refused_to_move_was_not_moved(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ids = [f"r{n}" for n in range(3 * AT_ONCE)]

    def move(batch: Sequence[str]) -> TransitionOutcome:
        if "r500" in batch:
            raise JournalContended("the database ended the statement, undone")
        return TransitionOutcome([moved(one) for one in batch], [])

    moves = MoveOutcome()
    with pytest.raises(typer.Exit) as ended, told(moves, "retry", json=True):
        move_all(ids, "retry", move, Published(), moves)
    assert ended.value.exit_code == 1
    out, said = capsys.readouterr()
    answer = orjson.loads(out)
    assert len(answer["moved"]) == AT_ONCE
    assert (answer["unsure"], answer["untried"]) == ([], ids[AT_ONCE:])
    assert "not known" not in said
    assert f"{2 * AT_ONCE} were not tried" in said


def test_an_error_before_anything_was_tried_is_told_as_any_other() -> None:
    with pytest.raises(JournalUnreachable), told(MoveOutcome(), "retry", json=False):
        raise JournalUnreachable("the database does not answer")
