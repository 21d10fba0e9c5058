"""What the log says of workers, limits and the database."""

from __future__ import annotations

from typing import Any

from processing.ipc.frames import LimitsFound
from processing.pool.actions import StartsPaused
from processing.pool.pool_log import PoolLog


class Lines:
    """A log that keeps its lines."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, str, dict[str, Any]]] = []

    def info(self, text: str, **facts: Any) -> None:
        self.kept.append(("info", text, facts))

    def debug(self, text: str, **facts: Any) -> None:
        self.kept.append(("debug", text, facts))

    def warning(self, text: str, **facts: Any) -> None:
        self.kept.append(("warning", text, facts))

    def error(self, text: str, **facts: Any) -> None:
        self.kept.append(("error", text, facts))

    def levels(self) -> list[str]:
        return [level for level, _, _ in self.kept]


def test_what_operators_change_is_told_once_and_where_shares_move_is_a_detail() -> None:
    lines = Lines()
    log = PoolLog(lines)  # type: ignore[arg-type]
    log.limits(LimitsFound(1, None, {}, []))
    assert lines.levels() == ["debug"], "nothing is limited: nothing to tell"

    log.limits(LimitsFound(2, 3, {"a": (2, 8, 4, 4), "b": (5, None, None, None)}, ["c"]))
    types = {
        "a": {"each_instance": 2, "total": 8, "here_now": 4, "here_soon": 4},
        "b": {"each_instance": 5},
    }
    assert lines.kept[-1] == ("info", "limits", {"workers": 3, "types": types, "paused": ["c"]})
    log.limits(LimitsFound(3, 3, {"a": (2, 8, 0, 1), "b": (5, None, None, None)}, ["c"]))
    assert lines.levels()[-1] == "debug"

    for number, found in enumerate(
        (
            LimitsFound(4, 3, {"a": (2, 9, 0, 1), "b": (5, None, None, None)}, ["c"]),
            LimitsFound(5, 3, {"b": (5, None, None, None)}, ["c"]),
            LimitsFound(6, 4, {"b": (5, None, None, None)}, ["c"]),
            LimitsFound(7, 4, {"b": (5, None, None, None)}, []),
            LimitsFound(8, None, {}, []),
        )
    ):
        log.limits(found)
        assert lines.levels()[-1] == "info", number


def test_what_was_never_reached_is_not_reached_again() -> None:
    lines = Lines()
    log = PoolLog(lines)  # type: ignore[arg-type]
    for before, up in ((False, True), (True, True), (True, False), (False, True)):
        log.database(before=before, up=up)
    assert [text for _, text, _ in lines.kept] == [
        "database reached: intake opens",
        "database away: intake stops until it is reached again",
        "database reached again: intake opens",
    ]


def test_that_no_worker_is_started_for_a_while_is_a_warning() -> None:
    lines = Lines()
    PoolLog(lines).tell(StartsPaused(8.0, 8, ready=1))  # type: ignore[arg-type]
    text = "workers died one after the other: none is started for a while"
    assert lines.kept == [("warning", text, {"seconds": 8.0, "deaths": 8, "ready": 1})]
