"""The bugs that suites have to find have their places, and one counts as found by its own check."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.chaos.real import campaign  # noqa: F401 - its faults register themselves
from tests.chaos.real.checks import CHECKS
from tests.chaos.real.faults import FAULTS
from tests.model.checkers import (
    FILE,
    SUITES,
    PlantedBug,
    Runner,
    RunResult,
    SuiteRun,
    SuiteTree,
    chosen_by,
    figures,
    judged,
    merged,
    module_of,
    planted_bug_of,
    planted_bugs,
    table,
    verdict_of,
)
from tests.model.mutants import parser_of
from tests.model.planting import ROOT, Bug

LIST = planted_bugs()
BY_EPISODE = {*CHECKS, "every request is answered", "resources stay as they are"}
KEPT = ROOT / "docs" / "reliability"
ONE = planted_bug_of(
    {"name": "one", "breaks": "order", "found": [{"run": "kills --kills 4", "by": ": lost: "}]},
    {"one": {"file": "consumer/cli.py", "old": "import gc\n", "new": ""}},
)
FOUND = RunResult(1, "a line\n4 kills: lost: 3\n", 61.2)


@pytest.mark.parametrize("planted", LIST, ids=lambda planted: planted.bug.name)
def test_it_can_be_planted(planted: PlantedBug) -> None:
    """Where the code was changed: say the same fault in its new words."""
    assert planted.bug.found(ROOT) == 1
    assert planted.bug.new != planted.bug.old
    assert planted.breaks
    assert planted.runs


def test_each_suite_has_several_to_find() -> None:
    found = Counter(suite for q in LIST for suite in {wanted.suite for wanted in q.runs})
    assert len({planted.bug.name for planted in LIST}) == len(LIST)
    assert {*found} == {*SUITES}
    assert min(found.values()) >= 2


def test_what_chaos_has_to_find_is_one_of_its_checks_under_faults_that_there_are() -> None:
    for wanted in (
        wanted for planted in LIST for wanted in planted.runs if wanted.suite == "chaos"
    ):
        words = shlex.split(wanted.command)
        assert wanted.by.removeprefix("PROBLEM ") in BY_EPISODE
        assert {*words[words.index("--faults") + 1].split(",")} <= FAULTS.keys()


def test_suites_are_run_as_their_scripts_do() -> None:
    assert module_of("simulate") == ("tests.model.simulate", {"PYTHONHASHSEED": "0"})
    assert module_of("kills") == ("tests.chaos.kills.run", {})
    assert all(find_spec(module_of(suite)[0]) for suite in SUITES)
    with pytest.raises(ValueError, match="scripts/setup starts no module"):
        module_of("setup")


def test_a_bug_is_found_by_the_check_that_it_is_for_alone() -> None:
    [wanted] = ONE.runs
    found = judged(ONE, wanted, FOUND)
    assert (found.found, found.said, found.seconds) == (True, "4 kills: lost: 3", 61.2)
    assert not judged(ONE, wanted, RunResult(1, "4 kills: effects twice: 3", 1)).found
    crashed = judged(ONE, wanted, RunResult(2, "x: lost: 1", 1))
    assert (crashed.found, crashed.said[:11]) == (False, "exit code 2")
    well = judged(ONE, wanted, RunResult(0, ": lost: 0", 1))
    assert (well.found, well.said) == (False, "the suite says that all is well")


class Scripted(SuiteTree):
    """Answers as it is told, and notes what was planted."""

    def __init__(self, folder: Path, *answers: RunResult) -> None:
        self._folder, self._answers = folder, [*answers]
        self.ran: list[str] = []
        file = folder / ONE.bug.file
        file.parent.mkdir()
        file.write_text("import gc\nimport os\n")

    def suite(self, command: str, name: str = "") -> RunResult:
        self.ran.append((self._folder / ONE.bug.file).read_text())
        return self._answers.pop(0)


def test_a_suite_that_fails_without_the_bug_has_found_nothing(tmp_path: Path) -> None:
    runner = Runner(Scripted(tmp_path, RunResult(1, "x: lost: 1", 5)), {})
    found = runner.run(ONE, ONE.runs[0])
    assert (found.found, found.said) == (False, "not tried, it fails without it: x: lost: 1")


def test_each_command_is_run_once_without_a_bug(tmp_path: Path) -> None:
    tree = Scripted(tmp_path, RunResult(0, "well", 5), FOUND, FOUND)
    runner = Runner(tree, {})
    assert [runner.run(ONE, ONE.runs[0]).found for _ in range(2)] == [True, True]
    assert tree.ran == ["import gc\nimport os\n", "import os\n", "import os\n"]
    assert (tmp_path / ONE.bug.file).read_text() == tree.ran[0]
    gone = PlantedBug(Bug("gone", ONE.bug.file, "not there", ""), "", ONE.runs)
    assert runner.run(gone, ONE.runs[0]).said == "its place is not in the code"


def test_figures_of_other_runs_are_kept_as_long_as_the_list_has_them() -> None:
    two = PlantedBug(
        ONE.bug, "order", (*ONE.runs, SuiteRun("chaos --seed 1", "PROBLEM nothing lost"))
    )
    old = judged(two, two.runs[1], RunResult(0, "", 80))
    kept = merged({}, figures([old], {"chaos --seed 1": RunResult(0, "", 70)}, "v1"), [two])
    assert kept["verdict"] == verdict_of(1) == "1 NOT FOUND"
    new = figures(
        [judged(two, two.runs[0], FOUND)], {"kills --kills 4": RunResult(0, "", 50)}, "v2"
    )
    told = merged(kept, new, [two])
    assert [one["version"] for one in told["bugs"]["one"]["runs"].values()] == ["v2", "v1"]
    assert (told["planted"], told["runs"], told["found by"]) == (1, 2, {"kills": 1})
    assert (told["seconds"], {*told["without a bug"]}) == (141, {one.command for one in two.runs})
    assert table(told)[0] == "| bug | `kills` | `chaos` |"
    assert table(told)[2] == "| one (order) | lost, 61 s | **not found** |"
    left = merged(told, {}, [ONE])
    assert (left["verdict"], left["runs"]) == (verdict_of(0), 1)
    assert merged(told, {}, []) == {**merged({}, {}, [])}


def test_runs_are_chosen_by_suite_and_by_name() -> None:
    options = parser_of().parse_args(["--checkers", "--suite", "fuzz", "--only", "UTF-8"])
    assert [wanted.suite for _, wanted in chosen_by(options)] == ["fuzz"]
    assert len(chosen_by(parser_of().parse_args([]))) == sum(len(q.runs) for q in LIST)


def test_the_page_has_the_table_of_the_kept_run() -> None:
    """Whoever keeps another one puts its table there, which the script prints."""
    kept, page = json.loads((KEPT / FILE).read_text()), (KEPT / "README.md").read_text()
    assert kept["verdict"] == verdict_of(0)
    assert "\n".join(table(kept)) in page
    runs = [run for bug in kept["bugs"].values() for run in bug["runs"].values()]
    assert not any("dirty" in one["version"] for one in [*runs, *kept["without a bug"].values()])
    assert merged(kept, {}, LIST) == kept
