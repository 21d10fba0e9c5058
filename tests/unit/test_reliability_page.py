"""Each row of docs/reliability.md says what shows it, and what it names is there."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.chaos.real import campaign  # noqa: F401 - its faults register themselves
from tests.chaos.real.faults import FAULTS
from tests.model.check_protocol import VARIANTS
from tests.model.simulate import Schedule

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text()

FILE = re.compile(r"`([\w/]+\.(?:py|pml)|scripts/\w+)`")
FAULT = re.compile(r"`([a-z]+(?:_[a-z]+)+)`")
VARIANT = re.compile(r"\(([A-Z_]+)\)")


def cells(page: str) -> list[str]:
    """The last cells of all tables whose last column is "shown by"."""
    found, inside = [], False
    for line in page.splitlines():
        if not line.startswith("|"):
            inside = False
        elif line.endswith("| shown by |"):
            inside = True
        elif inside and not line.startswith("|---"):
            found.append(line.strip("|").rpartition("|")[2].strip())
    return found


def wrong_with(cell: str) -> list[str]:
    """What a cell names that is not there; the cell itself where it names nothing and hides that.

    Files may stand below `tests/`.
    """
    files, faults = FILE.findall(cell), FAULT.findall(cell)
    if not files and not faults and "nothing" not in cell.lower():
        return [cell]
    missing = [f for f in files if not ((ROOT / "tests" / f).is_file() or (ROOT / f).is_file())]
    missing += [fault for fault in faults if fault not in FAULTS]
    return missing + [name for name in VARIANT.findall(cell) if name not in VARIANTS]


def test_each_row_says_what_shows_it_or_that_nothing_does() -> None:
    found = cells(PAGE)
    assert len(found) > 80
    assert [(cell, wrong) for cell in found if (wrong := wrong_with(cell))] == []


def test_rows_that_say_too_much_or_nothing_are_found() -> None:
    page = "| a | shown by |\n|---|---|\n| x | `unit/no.py`, `gods_wrath` |\n| y |  |\n\n| z |\n"
    assert [wrong_with(cell) for cell in cells(page)] == [["unit/no.py", "gods_wrath"], [""]]


def test_the_figures_of_the_kept_run_are_its_figures() -> None:
    """Whoever keeps another run of scripts/chaos says its figures on the page as well."""
    kept = json.loads((ROOT / "docs" / "reliability" / "chaos.json").read_text())
    told = next(line for line in PAGE.splitlines() if line.startswith("| `scripts/chaos` |"))
    names = ("seed", "faults", "kinds of faults", "messages", "effects", "in doubt and left so")
    figures = {name: f"{kept[name]:,}" if name != "seed" else str(kept[name]) for name in names}
    assert {name: figure for name, figure in figures.items() if figure not in told} == {}
    assert (kept["run twice"], kept["unexplained"]) == (0, 0)


def test_the_figures_of_the_kept_schedules_are_their_figures() -> None:
    kept = json.loads((ROOT / "docs" / "reliability" / "simulate.json").read_text())
    told = next(line for line in PAGE.splitlines() if line.startswith("| `scripts/simulate` |"))
    names = ("schedules", "simulated hours", "faults", "kinds of faults")
    figures = {name: f"{kept[name]:,}" for name in names}
    assert {name: figure for name, figure in figures.items() if figure not in told} == {}
    assert "dirty" not in kept["version"]
    assert kept["version"].split()[1].strip(",") in told
    assert kept["broken"] == []
    # What broke in the run before is told, and does not break any more.
    assert "107620" in told
    schedule = Schedule(107620, "commit")
    schedule.run()
    assert schedule.broken == ""
