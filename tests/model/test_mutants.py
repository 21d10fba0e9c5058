"""The bugs that `scripts/mutants` plants have their places in the code as it is."""

from __future__ import annotations

import pytest

from tests.model.mutants import ROOT, Mutant, mutants, untried

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
