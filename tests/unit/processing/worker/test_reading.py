"""What a worker makes of a message before its handler."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from feedback.contract.record import Record
from feedback.contract.states import HANDLER_ERROR, State
from processing import App
from processing.worker.reading import Limits, read_task
from processing.worker.task import Task


@pytest.mark.parametrize(
    "option, answer, wanted",
    [
        ("coalesce", 5, "coalesce= returned int; return text, or None"),
        ("coalesce", "x" * 201, "coalesce= returned str; .* has 201 characters"),
        ("coalesce", "", "coalesce= returned str; .* is empty"),
        ("not_before", 5, "not_before= returned int; return a datetime with a time zone, or None"),
        ("not_before", datetime(2026, 1, 1), "returned 2026-01-01 00:00:00; return a datetime"),  # noqa: DTZ001
        ("fingerprint", {1}, "fingerprint= of 'a' returned set; return text, bytes or a JSON"),
    ],
)
def test_what_an_options_function_may_not_return_is_named_with_its_handler(
    option: str, answer: Any, wanted: str
) -> None:
    app = App()
    options: dict[str, Any] = {option: lambda payload: answer}

    @app.handler("a", **options)
    def handle(payload: Any) -> None:
        """Never entered."""

    app.start_worker({})
    pairs: list[tuple[str, bytes | None]] = [("ce_id", b"1"), ("ce_type", b"a")]
    record: Record = ("t", 0, 7, 1_700_000_000_000, None, b"1", pairs, "a", None)
    task = read_task(app, 0, record, Limits(default_timeout=60, max_payload=100))
    assert isinstance(task, Task)
    assert task.outcome is not None
    assert (task.outcome.state, task.outcome.code) == (State.FAILED, HANDLER_ERROR)
    with pytest.raises(ValueError, match=wanted):
        raise ValueError(task.outcome.error)
    if option != "fingerprint":
        assert "handle (" in str(task.outcome.error)
