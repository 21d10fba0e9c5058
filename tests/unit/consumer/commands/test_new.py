"""A project that `oncepool new` makes: its own tests pass, and nothing is overwritten."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from consumer import cli
from consumer.commands.new import PLACES
from consumer.config.loader import load_settings


def new(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(cli.app, ["new", str(folder), *options])


@pytest.mark.long  # runs pytest
@pytest.mark.parametrize("name", ["web-shop", "test-app"])  # the second as a file of its tests
def test_its_tests_pass(tmp_path: Path, name: str) -> None:
    folder, package = tmp_path / name, name.replace("-", "_")
    made = new(folder)
    assert made.exit_code == 0, made.output
    there = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    places = {place.format(package=package) for place in PLACES.values()}
    assert there == places | {f"{package}/__init__.py", ".gitignore"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
         "-p", "no:schemathesis", "-p", "no:hypothesispytest"],
        cwd=folder, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert "4 passed" in done.stdout, done.stdout + done.stderr
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "."]
    assert subprocess.run(ruff, cwd=folder, check=False, capture_output=True).returncode == 0


@pytest.mark.parametrize(
    "name", ["Shop", "my shop", "1st", "json", "class", "processing", "tests", "a--b", "a" * 61]
)
def test_a_name_that_nobody_could_import_is_refused(tmp_path: Path, name: str) -> None:
    refused = new(tmp_path / name)
    assert refused.exit_code == 1
    assert repr(name) in refused.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["psycopg", "redis", "pytest", "confluent-kafka", "pluggy"])
def test_a_name_that_hides_what_oncepool_needs_is_refused(tmp_path: Path, name: str) -> None:
    refused = new(tmp_path / name)
    assert refused.exit_code == 1, refused.output
    assert "a module that it would hide" in refused.output
    assert list(tmp_path.iterdir()) == []


def test_it_is_said_what_a_name_begins_with(tmp_path: Path) -> None:
    assert "a small letter first" in " ".join(new(tmp_path / "1x").output.split())


def test_its_schema_and_prefix_are_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    longest = "x" + "-y" * 24 + "z"
    for name in ("web-shop", longest):
        assert new(tmp_path / name).exit_code == 0
        own = "oncepool_" + name.replace("-", "_")
        monkeypatch.chdir(tmp_path / name)
        settings = load_settings({}, environ={})
        assert (settings.database_schema, settings.redis_prefix) == (own, own)
        assert f"export ONCEPOOL_KAFKA_TOPIC={name} ONCEPOOL_REDIS_PREFIX={own} " in (
            (tmp_path / name / "README.md").read_text()
        ), "producers read the environment alone"


def test_what_is_there_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "app.py").write_text("mine")
    refused = new(tmp_path / "shop", "--json")
    assert refused.exit_code == 1
    assert "nothing of it was changed" in refused.output
    assert [p.name for p in (tmp_path / "shop").iterdir()] == ["app.py"]
    (tmp_path / "file").write_text("")
    assert new(tmp_path / "file").exit_code == 1
    (tmp_path / "empty").mkdir()
    assert new(tmp_path / "empty").exit_code == 0
