"""The bugs that `scripts/mutants` plants have their places in the code as it is."""

from __future__ import annotations

import pytest

from tests.model.mutants import (
    Mutant,
    Trial,
    chosen_by,
    figures,
    mutants,
    options_of,
    parser_of,
    untried,
    verdict,
)
from tests.model.planting import ROOT
from tests.support.published import command_of

LIST = mutants()


def test_there_are_enough_of_them_with_names_of_their_own() -> None:
    assert len({mutant.name for mutant in LIST}) == len(LIST) >= 40


@pytest.mark.parametrize("mutant", LIST, ids=lambda mutant: mutant.name)
def test_it_can_be_planted(mutant: Mutant) -> None:
    """Where the code was changed: say the same fault in its new words in mutants.toml."""
    assert mutant.found(ROOT) == 1
    assert mutant.new != mutant.old
    assert all((ROOT / killer.split("::")[0]).exists() for killer in mutant.killers)


def test_a_bug_whose_tests_fail_without_it_is_not_said_to_be_found() -> None:
    chosen = LIST[:3]
    killer = chosen[1].killers[0]
    shares = [m.name for m in chosen if killer in m.killers]
    found = untried(chosen, [f"{killer}::test_of_it[1]", "tests/unit/test_other.py::test_it"])
    assert [trial.mutant.name for trial in found] == shares
    assert not any(trial.killed for trial in found)
    assert untried(chosen, []) == []


def test_one_that_lives_is_told_and_named_in_the_figures() -> None:
    one, two, three = LIST[:3]
    trials = [
        Trial(one, killed=True, said="tests/unit/test_a.py::test_it[1]", seconds=1.0),
        Trial(
            two, killed=True, said="tests/unit/test_a.py::test_that by its time-out", seconds=1.0
        ),
    ]
    assert verdict(trials) == "all found"
    assert figures(trials, 2.4)["killed by"] == {"tests/unit/test_a.py": 2}
    told = figures([*trials, Trial(three, killed=False, said="no test found it", seconds=1.0)], 3.0)
    assert (told["verdict"], told["planted"], told["killed"]) == ("1 LIVE", 3, 2)
    assert told["lived"] == {three.name: "no test found it"}


def test_bugs_are_chosen_by_parts_of_their_names() -> None:
    options = parser_of().parse_args(
        ["--only", LIST[0].name, "--only", LIST[5].name, "--jobs", "1"]
    )
    assert chosen_by(options) == [LIST[0], LIST[5]]
    assert command_of("scripts/mutants", parser_of(), options) == (
        f"scripts/mutants --only '{LIST[0].name}' --only '{LIST[5].name}' --jobs 1"
    )
    assert command_of("scripts/mutants", parser_of(), parser_of().parse_args([])) == (
        "scripts/mutants"
    )
    assert chosen_by(parser_of().parse_args([])) == LIST


@pytest.mark.parametrize(
    "given, wrong",
    [
        (["--checkers", "--pure"], "--pure is not of --checkers"),
        (["--checkers", "--jobs", "4"], "--jobs is not of --checkers"),
        (["--checkers", "--patience", "60"], "--patience is not of --checkers"),
        (["--suite", "kills"], "--suite is of --checkers alone"),
        (["--keep", "logs"], "--keep is of --checkers alone"),
    ],
)
def test_options_of_the_other_bugs_are_refused(
    given: list[str], wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options_of(parser_of(), given)
    assert wrong in capsys.readouterr().err
    assert options_of(parser_of(), ["--checkers", "--suite", "kills", "--keep", "logs"]).checkers
    assert options_of(parser_of(), ["--stack", "--jobs", "1"]).stack
