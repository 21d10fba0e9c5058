"""What judges kills of main processes: it passes what is right, and sees each thing that is not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.kills.points import POINTS
from tests.chaos.kills.run import parser_of, publish
from tests.chaos.kills.verdict import PASSED, Books, Step, figures, judge
from tests.chaos.real.orders import Obedience, Orders
from tests.support.published import command_of

RIGHT = Books(
    sent={"a-1": "step", "a-2": "step", "b-1": "once", "b-2": "once", "c-1": "charge",
          "c-2": "charge"},
    malformed={(0, 7), (1, 7)}, not_sent=0, letters={(0, 7): 1, (1, 7): 1},
    steps=[Step("a-1", "a", 1, 10), Step("a-2", "a", 2, 10), Step("b-1", "b", 1, 11)],
    rows={"a-1": "done/ok", "a-2": "done/ok", "b-1": "done/ok", "b-2": "failed/instance_died",
          "c-1": "done/ok", "c-2": "in_doubt/worker_died"},
    entries={"a-1": 2, "a-2": 1, "b-1": 1, "c-1": 1, "c-2": 1},
)  # fmt: skip


def test_what_is_right_passes() -> None:
    verdict = judge("all", RIGHT, killed=3)
    assert verdict.wrong == []
    assert verdict.facts["entered twice"] == 1
    assert verdict.facts["charge not known to be done"] == 1


def rows(**changed: str) -> dict[str, str]:
    return {**RIGHT.rows, **{name.replace("_", "-"): end for name, end in changed.items()}}


@pytest.mark.parametrize(
    "change, seen",
    [
        ({"not_sent": 1}, "not sent"),
        ({"rows": {k: v for k, v in RIGHT.rows.items() if k != "c-1"}}, "lost"),
        ({"rows": rows(a_2="failed/instance_died")}, "ended failed/instance_died"),
        ({"rows": rows(c_2="running/ok")}, "ended running/ok"),
        ({"letters": {(0, 7): 1}}, "malformed lost"),
        ({"letters": {(0, 7): 2, (1, 7): 1}}, "malformed twice"),
        # A valid message as a dead letter does not stand for one that is lost.
        ({"letters": {(0, 7): 1, (1, 8): 1}}, "malformed lost"),
        ({"letters": {(0, 7): 1, (1, 7): 1, (1, 8): 1}}, "dead letters of others"),
        ({"exit_codes": {0: 3, 1: 1}}, "ended with another code"),
        ({"steps": [*RIGHT.steps, Step("b-1", "b", 1, 11)]}, "effects twice"),
        ({"steps": RIGHT.steps[:-1]}, "journal and effects differ"),
        ({"entries": {**RIGHT.entries, "b-2": 2}}, "entered twice that must not be"),
        ({"entries": {**RIGHT.entries, "c-2": 2}}, "entered twice that must not be"),
        ({"entries": {**RIGHT.entries, "c-1": 0}}, "done and never called"),
    ],
)
def test_each_thing_that_is_wrong_is_seen(change: dict[str, Any], seen: str) -> None:
    wrong = judge("all", replace(RIGHT, **change), killed=3).wrong
    assert any(line.startswith(seen) for line in wrong), wrong


def test_in_peace_the_order_of_keys_holds_and_hardly_any_handler_is_entered_twice() -> None:
    swapped = replace(RIGHT, steps=[RIGHT.steps[1], RIGHT.steps[0], RIGHT.steps[2]])
    assert judge("peace", swapped, killed=0).wrong == [
        "out of key order: 1", "entered twice: 1 of 6"
    ]  # fmt: skip


def test_out_of_order_may_be_only_what_was_in_flight_in_an_instance_that_was_killed() -> None:
    late = Step("a-1", "a", 1, 12)
    swapped = replace(RIGHT, steps=[*RIGHT.steps[1:], late], killed={12})
    verdict = judge("kills", swapped, killed=1)
    assert verdict.wrong == []
    assert verdict.facts["out of key order, in flight at a kill"] == 1
    assert judge("kills", replace(swapped, killed={10}), killed=1).wrong == ["out of key order: 1"]


def test_an_order_for_a_point_is_taken_once(tmp_path: Any) -> None:
    order = Orders(tmp_path).give(next(iter(POINTS)), "kill")
    taker = Obedience(str(tmp_path))
    assert taker.take("another", "") is None
    assert taker.take("commit_before", "3:7:") == "kill"
    assert taker.take("commit_before", "") is None
    assert (order.evidence(1) or {})["about"] == "3:7:"


def test_figures_are_those_of_all_rounds_and_say_what_is_wrong() -> None:
    fine, peace = judge("kills", RIGHT, killed=3), judge("peace", RIGHT, killed=0)
    told = figures([fine, replace(peace, wrong=[])])
    assert (told["verdict"], told["kills"], told["sent"], told["lost"]) == (PASSED, 3, 12, 0)
    assert (told["entered twice"], told["entered twice in peace"]) == (2, 1)
    assert list(told["rounds"]) == ["kills", "peace"]
    lost = judge("kills", replace(RIGHT, letters={(0, 7): 1}), killed=3)
    told = figures([fine, lost])
    assert (told["verdict"], told["malformed lost"]) == ("kills: malformed lost: 1", 1)


def test_each_kind_of_run_has_its_own_figures(tmp_path: Path) -> None:
    file = tmp_path / "kills.json"
    publish(file, "points", {"seed": 1})
    publish(file, "random", {"seed": 2})
    publish(file, "points", {"seed": 3})
    assert json.loads(file.read_text()) == {"points": {"seed": 3}, "random": {"seed": 2}}


def test_the_command_that_makes_a_run_again_is_told() -> None:
    parser = parser_of()
    given = parser.parse_args(["--points", "3", "--logs", "x", "--report", "y"])
    assert command_of("scripts/kills", parser, given) == "scripts/kills --points 3 --seed 1"
    given = parser.parse_args(["--protocol", "range", "--protocol", "consumer", "--rate", "40"])
    assert command_of("scripts/kills", parser, given) == (
        "scripts/kills --rate 40 --protocol range --protocol consumer --seed 1"
    )
