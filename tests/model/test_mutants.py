"""The bugs that `scripts/mutants` plants have their places in the code as it is."""

from __future__ import annotations

import pytest

from tests.model.mutants import ROOT, Mutant, mutants

LIST = mutants()


def test_there_are_enough_of_them_with_names_of_their_own() -> None:
    assert len({mutant.name for mutant in LIST}) == len(LIST) >= 40


@pytest.mark.parametrize("mutant", LIST, ids=lambda mutant: mutant.name)
def test_it_can_be_planted(mutant: Mutant) -> None:
    """Where the code was changed: say the same fault in its new words in mutants.toml."""
    assert mutant.found(ROOT) == 1
    assert mutant.new != mutant.old
    assert all((ROOT / killer.split("::")[0]).exists() for killer in mutant.killers)
