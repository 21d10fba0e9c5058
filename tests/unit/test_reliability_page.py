"""Each row of docs/reliability.md says what shows it, and what it names is there."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.real import campaign  # noqa: F401 - its faults register themselves
from tests.chaos.real.faults import FAULTS
from tests.model.check_protocol import VARIANTS
from tests.model.simulate import Schedule

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "docs" / "reliability"
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


def told_of(name: str) -> str:
    """The row of a script."""
    return next(line for line in PAGE.splitlines() if line.startswith(f"| `scripts/{name}` |"))


def kept_of(name: str) -> Any:
    """The figures of its kept run; None where none is kept."""
    file = KEPT / f"{name}.json"
    return json.loads(file.read_text()) if file.exists() else None


def of_chaos(kept: Any) -> list[str]:
    assert (kept["run twice"], kept["unexplained"]) == (0, 0)
    names = ("faults", "kinds of faults", "messages", "effects", "in doubt and left so")
    return [f"seed {kept['seed']}", *(f"{kept[name]:,}" for name in names)]


def of_simulate(kept: Any) -> list[str]:
    assert kept["broken"] == []
    names = ("schedules", "simulated hours", "faults", "kinds of faults")
    return [f"{kept[name]:,}" for name in names]


def of_malformed(kept: Any) -> list[str]:
    assert kept["problems"] == []
    most = max(kept["most memory of one process, MiB"].values())
    return [f"{kept['messages']:,} messages in {kept['seconds'] / 60:.0f} minutes",
            f"{kept['malformed']:,} of them malformed", f"{most} MiB in a process"]  # fmt: skip


def of_soak(kept: Any) -> list[str]:
    assert kept["judged rising"] == kept["run twice"] == kept["unexplained"] == 0
    work, clock = (kept[f"{how} p50, p99, most, ms"] for how in ("of work", "by the clock"))
    return [
        f"{kept['seconds'] / 60:.0f} minutes", f"{kept['requests']:,} requests",
        f"{kept['faults']:,} faults", f"{kept['main processes killed']} killed main processes",
        f"idle transaction {kept['longest idle transaction, s']:.1f} s",
        f"{kept['full collections in main processes']:,} full collections",
        f"{work[2]:.1f} ms of work",
        f"by the clock {clock[1]:.1f} ms at p99 and {clock[2]:.0f} ms at most",
    ]  # fmt: skip


def of_kills(kept: Any) -> list[str]:
    found = []
    for run in kept.values():
        assert run["verdict"].startswith("PASSED")
        assert run["lost"] == run["effects twice"] == run["malformed lost"] == 0
        found += [f"{run['kills']} kills", f"{run['sent']:,} requests",
                  f"{run['malformed']:,} malformed messages"]  # fmt: skip
        if run["entered twice"]:
            found.append(f"entered twice {run['entered twice']:,} times")
    return found


def of_mutants(kept: Any) -> list[str]:
    assert kept["lived"] == {}
    return [f"{kept['planted']} of them", f"{kept['that need no service']} that need no service",
            f"{kept['seconds'] / 60:.0f} minutes"]  # fmt: skip


def of_fuzz(kept: Any) -> list[str]:
    assert kept["wrong"] == []
    return [f"{kept['messages tried']:,} messages", f"{kept['seconds'] / 60:.0f} minutes"]


FIGURES = {
    "chaos": of_chaos, "simulate": of_simulate, "malformed": of_malformed, "soak": of_soak,
    "kills": of_kills, "mutants": of_mutants, "fuzz": of_fuzz,
}  # fmt: skip


def made_of(kept: Any) -> list[str]:
    """Commits that the runs of a file were made with."""
    told = kept.get("versions") or kept.get("version")
    if told is None:
        return [commit for run in kept.values() for commit in made_of(run)]
    text = told["oncepool"] if isinstance(told, dict) else told.split()[1].strip(",")
    return [text]


def options_of(kept: Any) -> list[str]:
    """Of the commands that make the runs of a file again; older files do not say them."""
    runs = [kept] if "verdict" in kept else kept.values()
    commands = " ".join(run.get("command", "") for run in runs)
    found = re.findall(r"--[\w-]+(?: '[^']+'| [^-\s]\S*)?", commands)
    return [option.removesuffix(".0") for option in found]


def untold(figures: Sequence[str], told: str) -> list[str]:
    """Figures that a row does not have, none of them as a part of another number."""
    return [figure for figure in figures if not re.search(
        rf"(?<![\d.])(?<!\d,){re.escape(figure)}(?![\d]|[.,]\d)", told)]  # fmt: skip


@pytest.mark.parametrize("name", [name for name in FIGURES if kept_of(name) is not None])
def test_the_figures_of_a_kept_run_are_its_figures(name: str) -> None:
    """Whoever keeps another run says its figures, its command and its version on the page."""
    kept, told = kept_of(name), told_of(name)
    assert untold(FIGURES[name](kept), told) == []
    assert not any("dirty" in commit for commit in made_of(kept))
    page = (KEPT / "README.md").read_text()
    assert [one for one in made_of(kept) if one[:7] not in told and one[:7] not in page] == []
    assert untold(options_of(kept), f"{told} {' '.join(page.split())}") == []


def test_figures_that_a_row_does_not_have_are_found() -> None:
    row = "| `scripts/x` | `--seed 7` | 1,260,643 messages, 30 kills in 14.5 minutes, 0 lost |"
    assert untold(["1,260,643 messages", "30 kills", "14.5 minutes", "seed 7"], row) == []
    wrong = ["260,643 messages", "0 kills", "4.5 minutes", "14 minutes", "1,260", "seed 70", "5"]
    assert untold(wrong, row) == wrong


RUN = {
    "verdict": "PASSED: all", "command": "scripts/kills --points 3 --rate 40.0 --seed 4",
    "versions": "oncepool 1234567a", "kills": 80, "sent": 41056, "malformed": 412, "lost": 0,
    "effects twice": 0, "malformed lost": 0, "entered twice": 3,
}  # fmt: skip


def test_figures_of_kills_mutants_and_fuzzing_are_read_of_their_files() -> None:
    kept = {"points": RUN, "random": {**RUN, "kills": 54, "entered twice": 0}}
    assert made_of(kept) == ["1234567a"] * 2
    assert options_of(kept) == ["--points 3", "--rate 40", "--seed 4"] * 2
    assert of_kills(kept) == [
        "80 kills", "41,056 requests", "412 malformed messages", "entered twice 3 times",
        "54 kills", "41,056 requests", "412 malformed messages",
    ]  # fmt: skip
    with pytest.raises(AssertionError):
        of_kills({"points": {**RUN, "verdict": "kills: lost: 1", "lost": 1}})
    bugs = {"lived": {}, "planted": 204, "that need no service": 130, "seconds": 1260}
    assert of_mutants(bugs) == ["204 of them", "130 that need no service", "21 minutes"]
    with pytest.raises(AssertionError):
        of_mutants({**bugs, "lived": {"a bug": "no test found it"}})
    assert made_of({"version": "oncepool 1234567, Python 3.11.7"}) == ["1234567"]
    fuzzed = {"wrong": [], "messages tried": 9_000_000, "seconds": 3600}
    assert of_fuzz(fuzzed) == ["9,000,000 messages", "60 minutes"]


def test_what_broke_in_an_earlier_run_of_schedules_is_told_and_does_not_break_any_more() -> None:
    assert "107620" in told_of("simulate")
    schedule = Schedule(107620, "commit")
    schedule.run()
    assert schedule.broken == ""
