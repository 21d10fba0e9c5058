"""What is looked for in windows of time, without a journal."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import pytest

from feedback.operations import inspection
from feedback.operations.bounded import TookTooLong
from feedback.operations.inspection import WINDOWS, LookedBack


def looked(monkeypatch: pytest.MonkeyPatch, windows: int) -> LookedBack:
    """What is found where there is time for so many windows."""
    asked: list[Any] = []

    def rows(*_: Any, seconds: float) -> list[dict[str, Any]]:
        asked.append(seconds)
        if len(asked) > windows:
            raise TookTooLong("no time")
        return [{"n": len(asked)}]

    monkeypatch.setattr(inspection, "_rows", rows)
    return inspection.most_resent(cast("Any", None), 2, 10, seconds=30.0, schema="s")


@pytest.mark.parametrize(
    "windows,back,whole",
    [(1, WINDOWS[0], False), (3, WINDOWS[2], False), (4, timedelta(hours=2), True)],
)
def test_the_last_window_for_which_there_was_time_is_the_answer(
    monkeypatch: pytest.MonkeyPatch, windows: int, back: timedelta, whole: bool
) -> None:
    found = looked(monkeypatch, windows)
    assert found == ([{"n": windows}], back, whole)


def test_where_there_was_time_for_none_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TookTooLong):
        looked(monkeypatch, 0)
