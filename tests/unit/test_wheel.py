"""What `pip install oncepool` puts into a user's environment, and that it works there.

Without a package index: what the packages need is linked from the environment of the tests.
`scripts/packages` installs them as users do.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = Path(sysconfig.get_path("purelib"))
CLIENT = ("confluent_kafka", "hiredis", "orjson", "redis", "typing_extensions")
"""Modules of the packages that a producer needs, and of those that these need."""

IMPORTED = """
import sys
import feedback
from feedback import AsyncClient, Client, outbox
from feedback.contract.envelope import read
assert "site-packages" in feedback.__file__, feedback.__file__
print(*sorted({"psycopg", "pydantic"} & sys.modules.keys()))
"""


def run(*command: str, folder: Path = ROOT, good: int = 0) -> str:
    hindering = ("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV")
    variables = {name: value for name, value in os.environ.items() if name not in hindering}
    done = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == good, done.stdout + done.stderr
    return done.stdout + done.stderr


def build(folder: Path, made: Path, *kinds: str) -> None:
    kinds_ = [part for kind in kinds for part in ("-t", kind)]
    run(sys.executable, "-m", "hatchling", "build", *kinds_, "-d", str(made), folder=folder)


def contents(archive: Path) -> dict[str, int]:
    """Checksums by path."""
    with zipfile.ZipFile(archive) as opened:
        return {one.filename: one.CRC for one in opened.infolist()}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("dist")
    build(ROOT, made, "sdist", "wheel")
    return made


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


@pytest.mark.long  # builds and installs it
def test_the_wheel_brings_our_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        paths = opened.namelist()
        (metadata,) = [path for path in paths if path.endswith("/METADATA")]
        lines = opened.read(metadata).decode().splitlines()
    names = {path.partition("/")[0] for path in paths}
    packages = {name for name in names if not name.endswith(".dist-info")}
    assert packages == {"consumer", "processing", "feedback", "stack"}
    assert any(path.endswith("project/app.py.tmpl") for path in paths)
    needed = [line for line in lines if line.startswith("Requires-Dist") and "extra ==" not in line]
    found = {line.split()[1].partition(">")[0].partition("[")[0] for line in needed}
    # A producer pulls neither a database driver nor a validator.
    assert found == {"confluent-kafka", "orjson", "redis", "typing-extensions"}


def test_the_sdist_makes_the_same_wheel(dist: Path, wheel: Path, tmp_path: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as opened:
        opened.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    build(unpacked, tmp_path / "dist", "wheel")
    again = tmp_path / "dist" / wheel.name
    assert contents(again) == contents(wheel)
    assert again.read_bytes() == wheel.read_bytes()
    assert not (unpacked / ".ci").exists()


@pytest.mark.long  # builds and installs it
def test_installed_alone_it_is_a_client_and_with_what_it_names_the_program(
    wheel: Path, tmp_path: Path
) -> None:
    run(sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env"))
    python, program = (str(tmp_path / "env" / "bin" / name) for name in ("python", "oncepool"))
    uv = str(Path(sys.executable).parent / "uv")
    run(uv, "pip", "install", "--offline", "--no-deps", "--python", python, str(wheel))
    (packages,) = (tmp_path / "env").glob("lib/*/site-packages")
    for name in CLIENT:
        for module in OURS.glob(f"{name}*"):
            if module.name in {name, f"{name}.py", f"{name}.libs"}:
                (packages / module.name).symlink_to(module)

    assert run(python, "-I", "-c", IMPORTED, folder=tmp_path).split() == []
    assert "pip install 'oncepool[consumer]'" in run(program, "--version", folder=tmp_path, good=1)
    # Files that lead to further folders are not read in a folder that is led to: not our sources.
    (packages / "all.pth").write_text(f"{OURS}\n")
    assert run(program, "--version", folder=tmp_path).startswith("oncepool ")
    assert "--health-port" in run(program, "run", "--help", folder=tmp_path)
