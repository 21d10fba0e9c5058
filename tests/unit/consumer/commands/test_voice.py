"""What keeps a program from beginning, in the form that its log was asked to have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

ROOT = Path(__file__).parents[4]
NOWHERE = {
    "ONCEPOOL_APP": "any:app", "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
    "ONCEPOOL_KAFKA_TOPICS": "requests", "ONCEPOOL_REDIS_URL": "redis://127.0.0.1:1",
    "ONCEPOOL_DATABASE_URL": "postgresql://127.0.0.1:1/none",
}  # fmt: skip
CASES = {
    # A setting that is missing, one that can't be read, and one that only a library refuses.
    "gateway": ({"ONCEPOOL_GATEWAY_HOST": "0.0.0.0"}, "gateway_keys is empty"),
    "relay": ({"ONCEPOOL_HEALTH_PORT": "-5"}, "health_port"),
    "run": ({"ONCEPOOL_KAFKA_PROPERTIES": '{"nonsense": 1}'}, "librdkafka refuses"),
}


def ended(command: str, folder: Path, **more: str) -> list[str]:
    kept = {name: value for name, value in os.environ.items() if "ONCEPOOL_" not in name}
    done = subprocess.run(
        [sys.executable, "-m", "consumer", command],
        cwd=folder, env={**kept, **NOWHERE, **more, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    return done.stderr.splitlines()


@pytest.mark.parametrize(
    "command",
    [one if one == "relay" else pytest.param(one, marks=pytest.mark.long) for one in CASES],
)
def test_with_json_logs_it_is_an_object_a_line(command: str, tmp_path: Path) -> None:
    given, cause = CASES[command]
    lines = [orjson.loads(line) for line in ended(command, tmp_path, ONCEPOOL_LOG_FORMAT="json",
                                                  **given)]  # fmt: skip
    [told] = [line for line in lines if cause in line["message"]]
    assert told["level"] == "error"
    assert {"timestamp", "logger"} <= told.keys()


@pytest.mark.parametrize(
    "text, variables, cause",
    [
        ('log_format = "json"\nhealth_port = -5\n', {}, "health_port = -5 (from "),
        ('log_format = "json"\nport = 1\n', {}, "port: there is no such setting"),
        ('[log]\nformat = "json"\n', {"ONCEPOOL_PORTS": "1"}, "ONCEPOOL_PORTS: there is no"),
    ],
)
def test_also_where_only_a_file_says_so_and_something_else_is_wrong(
    tmp_path: Path, text: str, variables: dict[str, str], cause: str
) -> None:
    (tmp_path / "oncepool.toml").write_text(text)
    [told] = map(orjson.loads, ended("relay", tmp_path, **variables))
    assert told["level"] == "error"
    assert cause in told["message"]


def test_an_error_that_nobody_foresaw_is_one_too(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "import sys\nfrom consumer.commands.voice import speak_as\n"
        "speak_as('json')\nraise RuntimeError('a bug')\n"
    )
    done = subprocess.run(
        [sys.executable, "broken.py"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    [line] = map(orjson.loads, done.stderr.splitlines())
    assert done.returncode == 1
    assert "RuntimeError: a bug" in line["exception"]
