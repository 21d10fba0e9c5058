"""Listings in terminals of any width, and in pipes."""

from __future__ import annotations

import io
from uuid import uuid4

import pytest
from rich.console import Console

from consumer.commands import output
from consumer.commands.listing import fitted, whole
from consumer.commands.requests import ATTEMPTS, COLUMNS, WHERE_ANY, print_request
from consumer.commands.status_output import print_statuses

ID = str(uuid4())
ERROR = "connection refused by the card service " * 12


def row(**changed: object) -> dict[str, object]:
    """A row of `requests list`."""
    return {
        **dict.fromkeys(COLUMNS),
        "id": ID,
        "type": "payment.create",
        "state": "failed",
        "code": "handler_error",
        "attempt": 3,
        "run": 4,
        "resends": 0,
        "finished_at": "2026-05-01 12:00:00.123",
        "error": ERROR,
        **changed,
    }


@pytest.mark.parametrize("width", [60, 80, 100, 140, 1000])
def test_an_id_is_never_cut_and_the_error_is_what_gives_way(width: int) -> None:
    columns = [c for c in COLUMNS if c not in WHERE_ANY or row()[c]]
    head, line = fitted(columns, [[output.as_cell(row()[c]) for c in columns]], width)
    assert line.startswith(ID)
    assert head.split()[-1] == "error"
    assert max(len(head), len(line)) <= max(width, 80)
    assert ("…" in line) == (width < len(ERROR))
    assert ("payment.create" in line) == (width > 80)


def test_a_dead_request_keeps_its_id_where_messages_have_numbers() -> None:
    columns = ("kind", "id", "request_id", "reason", "topic", "detail")
    rows = [["request", "", ID, "worker_died", "payments", ERROR],
            ["message", "17", "", "malformed", "payments", ERROR]]  # fmt: skip
    for line, name in zip(fitted(columns, rows, 80)[1:], (ID, "17"), strict=True):
        assert name in line.split()
        assert len(line) <= 80


def test_in_a_pipe_all_is_whole_and_nothing_is_padded_to_what_is_long() -> None:
    lines = whole([("id", "error", "state"), (ID, ERROR, "failed"), ("b", "short", "dead")])
    assert ERROR in lines[1]
    assert len(lines[2]) < 120
    assert all(line == line.rstrip() for line in lines)


def test_lines_of_a_table_end_where_their_text_ends(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(("column", "value"), [("id", ID), ("error", ERROR)])
    first = capsys.readouterr().out.splitlines()[1]
    assert first == first.rstrip()


def test_what_a_narrow_terminal_leaves_out_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, width=80)
    monkeypatch.setattr("rich.console.Console", lambda: screen)
    output.print_listing([row()], COLUMNS, 10, json=False, where_any=WHERE_ANY)
    printed = capsys.readouterr()
    assert ID in printed.out
    assert "finished_at" in printed.err
    assert "due_at" not in printed.err


def test_a_column_of_some_rows_is_shown_where_one_has_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [row(), row(id="b", state="waiting", due_at="2026-05-01 13:00:00.000")]
    output.print_listing(rows[:1], COLUMNS, 10, json=False, where_any=WHERE_ANY)
    assert "due_at" not in capsys.readouterr().out
    output.print_listing(rows, COLUMNS, 10, json=False, where_any=WHERE_ANY)
    printed = capsys.readouterr().out
    assert "due_at" in printed
    assert "2026-05-01 13:00:00.000" in printed


def test_status_shows_when_a_request_is_due_and_what_took_its_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    waiting = {"id": "a", "state": "waiting", "at": "10:00", "retry_at": "11:00"}
    print_statuses([waiting, {"id": "b", "state": "superseded", "superseded_by": "c"}], json=False)
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["id", "state", "at", "retry_at", "superseded_by"]
    assert first.split() == ["a", "waiting", "10:00", "11:00"]
    assert second.split() == ["b", "superseded", "c"]


@pytest.mark.parametrize("headers", [[["x"]], [["x", 5]], [["y", "eQ=="], [["x"], None]]])
def test_a_request_is_shown_whose_headers_nobody_can_read(
    capsys: pytest.CaptureFixture[str], headers: list[object]
) -> None:
    print_request({"id": ID, "headers": headers, "attempts": [], "transitions": []})
    assert ID in capsys.readouterr().out


def test_a_request_is_shown_with_the_traceback_of_its_last_failure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs = [{**dict.fromkeys(ATTEMPTS), "run": n, "traceback": text}
            for n, text in ((1, "first"), (2, "in pay\nValueError: no"), (3, None))]  # fmt: skip
    asked = [{"id": "ship", "type": "a", "state": "waiting", "code": "follow_up"}]
    print_request({"id": ID, "headers": None, "attempts": runs, "transitions": [],
                   "asked_by": "order", "follow_ups": asked})  # fmt: skip
    out = capsys.readouterr().out
    assert "in pay\nValueError: no" in out
    assert "first" not in out
    assert "order" in out
    assert "ship" in out
