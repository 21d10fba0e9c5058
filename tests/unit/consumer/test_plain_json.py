"""JSON of whatever the journal and the settings hold."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from consumer.admin.plain_json import to_json
from consumer.commands.output import as_cell, print_json


def test_integers_of_any_size_are_exact_beside_what_json_has_no_form_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    long = 12345678901234567890123
    row = {"result": {"n": long}, "at": datetime(2030, 1, 1, tzinfo=UTC), "key": b"k", 1: b"\xff"}
    expected = {"result": {"n": long}, "at": "2030-01-01T00:00:00Z", "key": "k", "1": "/w=="}
    print_json(row)
    assert json.loads(capsys.readouterr().out) == expected
    assert json.loads(as_cell({"n": long})) == {"n": long}
    row["result"] = {}
    assert json.loads(to_json(row)) == expected | {"result": {}}
