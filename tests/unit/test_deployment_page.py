"""docs/deployment.md and comments in deploy/ say what is: settings, defaults, times, places."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from consumer.config.settings import Settings
from consumer.service.service import STUCK_AFTER
from feedback.outbox.relay.relay import STOP_TIMEOUT

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PAGE = (ROOT / "docs" / "deployment.md").read_text()
FILES = sorted([*DEPLOY.glob("systemd/*"), *DEPLOY.glob("kubernetes/*")])
TEXTS = {path.name: path.read_text() for path in FILES} | {"deployment.md": PAGE}
DEFAULTS = {name: field.default for name, field in Settings.model_fields.items()}


def systemd(name: str, key: str) -> str:
    (found,) = re.findall(rf"^{key}=(.*)$", TEXTS[f"{name}.service"], re.MULTILINE)
    return str(found)


def kubernetes(role: str) -> int:
    objects: list[Any] = list(yaml.safe_load_all(TEXTS[f"{role}.yaml"]))
    (found,) = (one["spec"] for one in objects if one["kind"] == "Deployment")
    return int(found["template"]["spec"]["terminationGracePeriodSeconds"])


@pytest.mark.parametrize("name", TEXTS)
def test_each_setting_that_is_named_is_one(name: str) -> None:
    found = re.findall(r"\bONCEPOOL_([A-Z0-9_]*[A-Z0-9])", TEXTS[name])
    assert {one.lower() for one in found} <= DEFAULTS.keys()


@pytest.mark.parametrize("name", TEXTS)
def test_each_default_that_is_told_is_that_of_the_setting(name: str) -> None:
    told = re.findall(r"\b([a-z_]+)`? \((\d+) s\)", TEXTS[name])
    for setting, seconds in told:
        if setting in DEFAULTS:
            assert DEFAULTS[setting] == float(seconds), setting


def test_the_table_of_ends_has_the_times_of_the_files() -> None:
    grace = DEFAULTS["grace"]
    longest = {"run": grace + STUCK_AFTER, "gateway": grace, "relay": STOP_TIMEOUT}
    files = {"run": ("consumer", "oncepool"), "gateway": ("gateway", "oncepool-gateway"),
             "relay": ("relay", "oncepool-relay")}  # fmt: skip
    for program, (role, unit) in files.items():
        (row,) = re.findall(rf"^\| `{program}` \|(.*)\|$", PAGE, re.MULTILINE)
        _, defaults, manifest, stop = row.split("|")
        assert re.findall(r"\d+", defaults) == [f"{longest[program]:.0f}"], program
        assert re.findall(r"\d+", manifest)[0] == str(kubernetes(role)), program
        assert re.findall(r"\d+", stop) == [systemd(unit, "TimeoutStopSec")], program


def test_units_look_where_the_page_puts_things() -> None:
    (made,) = re.findall(r"-m venv (\S+)", PAGE)
    (environment,) = re.findall(r"install .*environment (/\S+)", PAGE)
    for unit in ("oncepool", "oncepool-gateway", "oncepool-relay"):
        assert systemd(unit, "ExecStart").split()[0] == f"{made}/bin/oncepool"
        assert systemd(unit, "WorkingDirectory") == made
        assert systemd(unit, "EnvironmentFile") == environment


def test_what_the_page_installs_has_what_the_units_run() -> None:
    (extras,) = re.findall(r"pip install 'oncepool\[([a-z,]+)\]' shop", PAGE)
    assert "gateway" in extras.split(",")
