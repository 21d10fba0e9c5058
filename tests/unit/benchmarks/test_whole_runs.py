"""Only a whole run takes the place of what the last one left in results/."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import Any

import pytest

from benchmarks import contest
from benchmarks.options import options_of, parser_of
from benchmarks.peers import CONTEST


@pytest.mark.parametrize(
    "arguments, kept",
    [
        ([], True),
        (["--rounds", "2"], True),
        (["--own"], True),
        (["--workers", "3"], True),  # of another name
        (["--quick"], False),
        (["--case", "one INSERT"], False),
        (["--scale", "0.01"], False),
        (["--scale", "1"], False),
    ],
)
def test_peers(arguments: list[str], kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []
    for name in ("_warm_up", "_runs", "_tell"):
        monkeypatch.setattr(contest.Contest, name, lambda *_: None)
    for name in ("facts", "_ratio"):
        monkeypatch.setattr(contest, name, lambda *_: None)
    monkeypatch.setattr(contest, "present", list)
    monkeypatch.setattr(contest, "version_of", str)
    monkeypatch.setattr(contest, "services", nullcontext)
    monkeypatch.setattr(contest.Contest, "_keep", lambda _, *results: written.append(results))
    monkeypatch.setattr(sys, "argv", ["peers", *arguments])
    CONTEST.main()
    assert bool(written) is kept


def test_options_of_a_benchmark_of_its_own() -> None:
    parser = parser_of("", "", 3)
    parser.add_argument("--requests", type=int)
    parser.add_argument("--out")
    assert options_of(parser, "out", given=["--rounds", "1", "--out", "x"]).whole
    assert not options_of(parser, given=["--out", "x"]).whole
    assert not options_of(parser, given=["--requests", "10"]).whole
