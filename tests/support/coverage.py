"""A pytest plugin: ``--coverage-floors`` fails a run in which an important module was not tested.

Needs ``--cov``. Branches count that were taken in the test processes themselves: a child process
that a test kills could not tell which it took. The important modules are the state machines, and
what decides whether a request runs: those that `include` of `tool.coverage.run` names. No others
are measured, as measuring takes time.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import coverage
import pytest

FLOOR = 90.0

_lines = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds ``--coverage-floors``."""
    parser.addoption(
        "--coverage-floors",
        action="store_true",
        help=f"fail where less than {FLOOR:.0f} %% of an important module's branches were taken",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Ends what pytest-cov has begun in a worker of pytest-xdist before it knew that it is one.

    The measurement that it begins next lies above that one, and a test marked `no_cover` would
    only fall back on it.
    """
    measuring = coverage.Coverage.current()
    if measuring is not None and hasattr(session.config, "workerinput"):
        measuring.stop()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Measures nothing meanwhile: importing all tests takes nearly twice the time else.

    Branches are in functions, which nobody calls yet.
    """
    measuring = coverage.Coverage.current()
    if measuring is not None:
        measuring.stop()
    try:
        return (yield)
    finally:
        if measuring is not None:
            measuring.start()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out tests that are not beside an important module: being measured takes a third more.

    Those of the whole service run the code in processes of its own.
    """
    measured = {Path(module).parts[:2] for module in modules(Path(config.rootpath))}
    for item in items:
        kind, *package = item.path.relative_to(config.rootpath).parts[1:]
        beside = kind in {"unit", "contract"} and tuple(package[:2]) in measured
        if not beside and kind != "model":
            item.add_marker("no_cover")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Looks at what was measured, before the summary is written."""
    config = session.config
    if not config.getoption("--coverage-floors") or hasattr(config, "workerinput"):
        return
    lines, missed = judge(branches(Path(config.rootpath)), modules(Path(config.rootpath)))
    config.stash[_lines] = lines
    if missed and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Writes the table."""
    if lines := config.stash.get(_lines, None):
        terminalreporter.section("branch coverage of the core")
        for line in lines:
            terminalreporter.write_line(line)


def branches(root: Path) -> dict[str, tuple[int, int]]:
    """For each measured file, by its path below `root`: branches taken, and all."""
    measured = coverage.Coverage(data_file=str(root / ".coverage"), messages=False)
    measured.load()
    with tempfile.NamedTemporaryFile("r", suffix=".json") as report:
        measured.json_report(outfile=report.name)
        files = json.load(io.StringIO(Path(report.name).read_text()))["files"]
    return {
        path: (file["summary"]["covered_branches"], file["summary"]["num_branches"])
        for path, file in files.items()
    }


def modules(root: Path) -> list[str]:
    """The modules that have to reach the floor, as pyproject.toml names them."""
    configured = coverage.Coverage(config_file=str(root / "pyproject.toml"), data_file=None)
    named = configured.get_option("run:include")
    assert isinstance(named, list)
    return named


def judge(
    measured: dict[str, tuple[int, int]], modules: Iterable[str]
) -> tuple[list[str], list[str]]:
    """A line for each module, and the modules that are below the floor or missing."""
    lines: list[str] = []
    missed: list[str] = []
    for module in modules:
        files = [path for path in measured if path == module or path.startswith(f"{module}/")]
        taken = sum(measured[path][0] for path in files)
        total = sum(measured[path][1] for path in files)
        percent = 100.0 * taken / total if total else 100.0
        if not files:
            lines.append(f"{module:<28} there is no such module")
        else:
            verdict = "" if percent >= FLOOR else f"  below {FLOOR:.0f} %"
            lines.append(f"{module:<28} {percent:5.1f} %  {taken} of {total}{verdict}")
        if not files or percent < FLOOR:
            missed.append(module)
    return lines, missed
