"""deploy/systemd: valid, and their times are those of the product."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from consumer.config.settings import Settings
from consumer.service.service import BEAT_EVERY, STUCK_AFTER
from feedback.outbox.relay.relay import STOP_TIMEOUT
from processing.ipc.service_manager import LEAST_PAUSE

ROOT = Path(__file__).parents[2]
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
COMMANDS = {"oncepool": "run", "oncepool-gateway": "gateway", "oncepool-relay": "relay"}


def service(name: str) -> dict[str, str]:
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(ROOT / "deploy" / "systemd" / f"{name}.service")
    return dict(parser["Service"])


def test_there_is_one_for_each_program() -> None:
    assert {path.stem for path in UNITS} == COMMANDS.keys()
    for name, command in COMMANDS.items():
        assert service(name)["ExecStart"] == f"/opt/oncepool/bin/oncepool {command}"


def test_systemd_takes_them(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("install systemd, for systemd-analyze")
    for path in UNITS:
        text = path.read_text().replace("/opt/oncepool/bin/oncepool", sys.executable)
        (tmp_path / path.name).write_text(text)
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *tmp_path.glob("*.service")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (verified.returncode, verified.stderr) == (0, "")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_program_tells_that_it_lives_more_often_than_it_must(name: str) -> None:
    one = service(name)
    assert (one["Type"], one["NotifyAccess"]) == ("notify", "main")
    # systemd wants one in each WatchdogSec; the program gives two.
    assert int(one["WatchdogSec"]) >= 5 * max(LEAST_PAUSE, BEAT_EVERY)


def test_each_has_the_time_to_end_by_itself() -> None:
    grace = Settings.model_fields["grace"].default
    stop = {name: int(service(name)["TimeoutStopSec"]) for name in COMMANDS}
    assert stop["oncepool"] > grace + STUCK_AFTER
    assert stop["oncepool-gateway"] > grace
    assert stop["oncepool-relay"] > STOP_TIMEOUT
    page = (ROOT / "docs" / "operations.md").read_text()
    assert re.findall(r"TimeoutStopSec=(\d+)", page) == [str(stop["oncepool"])]


def test_the_main_process_alone_hears_of_the_end() -> None:
    """Else each worker would be asked to give up before anything was drained."""
    assert service("oncepool")["KillMode"] == "mixed"
