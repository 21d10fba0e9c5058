"""What `pip install oncepool` puts into a user's environment."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_wheel_brings_our_packages_and_nothing_else(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )

    (wheel,) = tmp_path.glob("*.whl")
    names = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}

    packages = {name for name in names if not name.endswith(".dist-info")}
    assert packages == {"consumer", "processing", "feedback", "stack"}
    with zipfile.ZipFile(wheel) as opened:
        [metadata] = [name for name in opened.namelist() if name.endswith("/METADATA")]
        lines = opened.read(metadata).decode().splitlines()
        assert any(name.endswith("project/app.py.tmpl") for name in opened.namelist())
    needed = [line for line in lines if line.startswith("Requires-Dist") and "extra ==" not in line]
    found = {line.split()[1].partition(">")[0].partition("[")[0] for line in needed}
    # A producer pulls neither a database driver nor a validator.
    assert found == {"confluent-kafka", "orjson", "redis", "typing-extensions"}
