"""A run of the chaos suite that was kept: judged and published by another version."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.real import campaign
from tests.chaos.real.campaign import Chapter, judge_again, problems_of_run
from tests.chaos.real.episode import EpisodePlan, Outcome
from tests.chaos.real.kept_run import (
    WITHOUT_END,
    keep_known,
    keep_outcome,
    kept_outcomes,
    known_of,
)
from tests.chaos.real.pickled import Pickled
from tests.chaos.real.right_facts import right

RAN = "oncepool 1a2b3c4"
KNOWN: dict[str, Any] = {
    "seed": 7, "command": "scripts/chaos --seed 7", "seconds": 60, "brokers": 3, "instances": 3,
    "pooled connections": 0, "versions": RAN, WITHOUT_END: 0,
}  # fmt: skip


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A folder with a run of ten episodes, in each of which its own judge has found something."""
    keep_known(tmp_path, KNOWN)
    for number in range(10):
        plan = EpisodePlan(f"chaos_7_{number}_abc", "range", "key", 7, 60.0, 1, 10.0, 1.0)
        keep_outcome(tmp_path, Outcome(plan, right(), 0.0, 60.0, 80.0, wrong={"old": ["a", "b"]}))
    return tmp_path


@dataclass
class Old(Pickled):
    """As it was."""

    kept: int
    gone: int = 2


@dataclass
class New(Pickled):
    """As it is."""

    kept: int
    number: int = 5
    some: list[str] = field(default_factory=list)


def test_older_pickles_have_the_defaults_of_what_they_lack() -> None:
    old = pickle.loads(pickle.dumps(New(3)))
    assert old == New(3)
    was = New.__new__(New)
    was.__setstate__(vars(Old(4)))
    assert was == New(4)
    assert "gone" not in vars(was)
    other = New.__new__(New)
    other.__setstate__({"kept": 1})
    other.some.append("x")
    assert was.some == []


def test_episodes_are_kept_in_the_order_of_the_run(kept: Path) -> None:
    found = [outcome.plan.name for _, outcome in kept_outcomes(kept)]
    assert found == [f"chaos_7_{number}_abc" for number in range(10)]
    assert known_of(kept) == KNOWN


def test_a_kept_run_is_judged_anew_and_says_who_ran_and_who_judged(
    kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(campaign, "versions", lambda: {"oncepool": "9f8e7d6"})
    assert judge_again(kept, kept / "report") == 0
    told = json.loads((kept / "report" / "chaos.json").read_text())
    assert (told["versions"], told["judged by"]) == (RAN, "oncepool 9f8e7d6")
    assert (told["seed"], told["requests"]) == (7, 20)
    assert "oncepool 9f8e7d6" in (kept / "report" / "chaos.html").read_text()
    assert "PROBLEM" not in capsys.readouterr().out
    monkeypatch.setattr(campaign, "versions", lambda: {"oncepool": "1a2b3c4"})
    judge_again(kept, kept / "report")
    assert "judged by" not in json.loads((kept / "report" / "chaos.json").read_text())


def test_what_does_not_hold_of_a_kept_run_is_found(kept: Path) -> None:
    _, outcome = next(kept_outcomes(kept))
    outcome.facts.unread.append("partition 0: finished up to 3, committed up to 4, of 4")
    keep_outcome(kept, outcome)
    assert judge_again(kept, kept / "report") == 1
    assert json.loads((kept / "report" / "chaos.json").read_text())["verdict"] == "1 problems"


def test_an_episode_without_an_end_is_a_problem_of_the_kept_run(kept: Path) -> None:
    keep_known(kept, KNOWN | {WITHOUT_END: 1})
    assert judge_again(kept, None) == 1


def test_a_run_as_a_whole_has_to_have_judged_a_lost_connection() -> None:
    chapter = Chapter(None, 1, 0, campaign.Counter(), lost_connections=30, lost_alone=0)
    assert len(problems_of_run([chapter, chapter])) == 1
    assert problems_of_run([chapter]) == {}
