from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson
import pytest
import typer
from typer.testing import CliRunner

from consumer import cli
from consumer.admin.checks import Finding
from consumer.commands import check as check_command
from consumer.commands import run as run_command
from consumer.config.settings import Settings, variable
from consumer.config.variables import OTHER_VARIABLES
from tests.support.command_line import oncepool

ROOT = Path(__file__).parents[3]

WITHOUT_TWIN = {
    "stack down delete",  # a forgotten variable must not delete anything
    "dead-letters retry everything",  # the same
    "dead-letters drop everything",
    "prune force",
    "outbox retry everything",
    "outbox drop everything",
}


pytestmark = pytest.mark.usefixtures("unconfigured")


def commands(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command with its whole name."""
    group = typer.main.get_command(cli.app) if group is None else group
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if hasattr(command, "list_commands"):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def test_every_option_has_an_environment_twin_that_the_settings_know() -> None:
    known = {variable(name) for name in Settings.model_fields} | OTHER_VARIABLES.keys()
    for name, command in commands():
        for option in command.params:
            if option.name == "help" or option.param_type_name != "option":
                continue
            if f"{name} {option.name}" in WITHOUT_TWIN:
                continue
            twin = option.envvar
            assert twin, f"{name} --{option.name} has no environment variable"
            assert twin in known, f"{twin} stands in no table of variables"


def test_every_variable_that_is_told_of_is_an_options() -> None:
    used = {option.envvar for _, command in commands() for option in command.params}

    # The first is set by `stack up` itself, the last is where downloads are kept.
    assert OTHER_VARIABLES.keys() - used <= {"ONCEPOOL_STACK", "ONCEPOOL_STACK_CACHE"}


def test_every_command_is_in_the_documentation() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")

    for name, _ in commands():
        assert f"`oncepool {name}" in page or name.startswith("stack"), name


def test_reading_commands_take_json() -> None:
    reading = {"check", "status", "requests list", "requests show", "stats", "topics create"}
    reading |= {"dead-letters list", "dead-letters show"}
    reading |= {"schedules list", "schedules pause", "schedules resume", "schedules drop"}
    reading |= {"limits show", "limits set", "limits pause", "limits resume"}
    with_json = {name for name, c in commands() if any("--json" in p.opts for p in c.params)}

    assert reading <= with_json


def test_the_program_itself_loads_no_client_and_no_command() -> None:
    code = (
        "import sys, consumer.cli\n"
        "heavy = {'confluent_kafka', 'psycopg', 'redis', 'pydantic', 'rich', 'stack.commands'}\n"
        "print(sorted(heavy & sys.modules.keys()))\n"
        "import consumer.commands.run\n"
        "print('rich' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == ["[]", "False"]


def test_python_m_consumer_is_the_same_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "consumer", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0
    assert "Usage: oncepool" in done.stdout


def test_wrong_usage_is_exit_code_2() -> None:
    assert oncepool("no-such-command").exit_code == 2
    assert oncepool("status").exit_code == 2
    assert oncepool("send", "a", "{}", "--file", "x").exit_code == 2


def test_a_missing_setting_is_named_with_its_ways_and_exit_code_1() -> None:
    result = oncepool("migrate")

    assert result.exit_code == 1
    assert result.stderr.startswith("oncepool: needed and not set: database_url")
    assert "ONCEPOOL_DATABASE_URL" in result.stderr
    assert "Traceback" not in result.output


def test_a_database_that_does_not_answer_is_one_line_that_says_what_to_do() -> None:
    result = oncepool("migrate", "--database-url", "postgresql://u:hidden@127.0.0.1:1/x")

    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("oncepool: the database does not answer; correct database_url")
    assert "hidden" not in line


@pytest.mark.parametrize("url", ["hots=1", "postgresql://h/x?nonsense=1"])
def test_a_database_url_that_postgresql_cannot_read_is_named(url: str) -> None:
    result = oncepool("migrate", "--database-url", url)

    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("oncepool: database_url can't be used, correct it: ")


@pytest.mark.parametrize("command", [("status",), ("send",), ("requests", "list", "--type")])
def test_what_is_no_text_is_named(command: tuple[str, ...]) -> None:
    result = oncepool(*command, "\udcff")

    assert (result.exit_code, result.stderr) == (
        2,
        "oncepool: argument '\\udcff' is not UTF-8: give it as text\n",
    )


def test_a_variable_that_is_no_text_is_named() -> None:
    result = oncepool("status", "x", env={"ONCEPOOL_WHO": "\udcff", "OTHER": "\udcff"})

    assert result.exit_code == 2
    assert "environment variable 'ONCEPOOL_WHO' is not UTF-8" in result.stderr


def test_a_working_directory_that_is_gone_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    result = oncepool("migrate")

    assert result.exit_code == 1
    assert result.stderr.startswith("oncepool: the working directory is gone")


@pytest.mark.parametrize(
    "arguments",
    [
        ("stats", "--minutes", "99999999999999"),
        ("requests", "list", "--limit", "99999999999999999999"),
        ("dead-letters", "list", "--limit", "99999999999999999999"),
        ("prune", "--older-than", "30d", "--resend-window", "2100-01-01"),
    ],
)
def test_numbers_beyond_what_can_be_are_wrong_usage(arguments: tuple[str, ...]) -> None:
    address = {"ONCEPOOL_DATABASE_URL": "postgresql://127.0.0.1:1/x"}
    result = oncepool(*arguments, env=address)

    assert result.exit_code == 2
    assert arguments[-2] in result.stderr


def test_output_that_nobody_can_write_is_a_message() -> None:
    command = [sys.executable, "-m", "consumer", "outbox", "migrate", "--sql"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )

    assert (done.returncode, done.stderr) == (1, "oncepool: No space left on device\n")


def test_closed_standard_streams_are_empty_ones() -> None:
    command = f"{sys.executable} -m consumer send a - <&-"
    done = subprocess.run(
        ["/bin/sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert done.stderr.startswith("oncepool: standard input is not JSON")


def test_ctrl_c_before_anything_is_loaded_ends_without_a_word() -> None:
    code = (
        "import sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'consumer.cli':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "from consumer.__main__ import main\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (130, "")


def test_a_wrong_setting_is_exit_code_1(tmp_path: Path) -> None:
    (tmp_path / "oncepool.toml").write_text("worker = 1")

    result = oncepool("check")

    assert result.exit_code == 1
    assert "did you mean workers?" in result.stderr


@pytest.mark.parametrize(
    "arguments, name, value",
    [
        (("run",), "ONCEPOOL_READ_AGAIN", "maybe"),
        (("gateway",), "ONCEPOOL_GATEWAY_PAGES", "maybe"),
        (("status", "x"), "ONCEPOOL_JSON", "maybe"),
        (("requests", "list"), "ONCEPOOL_LIST_LIMIT", "0"),
        (("requests", "list"), "ONCEPOOL_LIST_STATE", "odd"),
    ],
)
def test_a_wrong_value_in_the_environment_is_exit_code_1(
    arguments: tuple[str, ...], name: str, value: str
) -> None:
    """As that of a setting which the settings read themselves."""
    result = oncepool(*arguments, env={name: value})
    assert result.exit_code == 1, result.output
    assert result.stderr.startswith(f"oncepool: environment variable {name} = '{value}': ")
    assert "Usage" not in result.output


def test_a_wrong_option_is_wrong_usage_whatever_the_environment_has() -> None:
    wrong = oncepool("requests", "list", "--limit", "0", env={"ONCEPOOL_LIST_LIMIT": "1"})
    assert (wrong.exit_code, "Usage" in wrong.output) == (2, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("requests", "list", "--type", ""),
        ("requests", "list", "--state", "accepted"),  # no row is
        ("requests", "retry", "--type", ""),
        ("dead-letters", "list", "--type", " "),
        ("outbox", "list", "--type", ""),
        ("asyncapi", "--api-version", ""),
    ],
)
def test_what_nothing_could_mean_is_refused(arguments: tuple[str, ...]) -> None:
    result = oncepool(*arguments)
    assert (result.exit_code, "Usage" in result.output) == (2, True), result.output


# check


@pytest.fixture
def findings(monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    found = [Finding("kafka", "ok", "1 broker(s) answer")]
    monkeypatch.setattr(check_command, "run_checks", lambda _settings: found)
    return found


def checked(*arguments: str, **environ: str) -> dict[str, Any]:
    result = oncepool("check", "--json", *arguments, env=environ)
    answer: dict[str, Any] = orjson.loads(result.stdout)
    answer["exit_code"] = result.exit_code
    answer["settings"] = {s["name"]: s for s in answer["settings"]}
    return answer


def test_check_names_the_true_source_of_each_value(findings: list[Finding], tmp_path: Path) -> None:
    (tmp_path / "oncepool.toml").write_text("grace = 5\nworkers = 9\nmax_in_hand = 7\n")

    settings = checked("--workers", "2", ONCEPOOL_WORKERS="3", ONCEPOOL_GRACE="4")["settings"]

    assert settings["workers"] == {"name": "workers", "value": 2, "source": "argument"}
    assert settings["grace"]["source"] == "environment ONCEPOOL_GRACE"
    assert settings["grace"]["value"] == 4.0
    assert settings["max_in_hand"]["source"] == str(tmp_path / "oncepool.toml")
    assert settings["ordering"]["source"] == "default"
    assert settings.keys() == Settings.model_fields.keys()


def test_an_argument_equal_to_the_environments_value_is_still_an_argument(
    findings: list[Finding],
) -> None:
    assert (
        checked("--workers", "3", ONCEPOOL_WORKERS="3")["settings"]["workers"]["source"]
        == "argument"
    )


def test_check_takes_the_app_by_position(findings: list[Finding]) -> None:
    settings = checked("shop.requests:app")["settings"]

    assert settings["app"]["value"] == "shop.requests:app"
    assert settings["app"]["source"] == "argument"


def test_check_masks_secrets(findings: list[Finding]) -> None:
    result = oncepool("check", "--database-url", "postgresql://u:hidden@h/d")

    assert "hidden" not in result.output
    assert "u:***@h" in result.output


def test_checks_exit_code_says_whether_something_is_wrong(findings: list[Finding]) -> None:
    assert checked()["exit_code"] == 0

    findings.append(Finding("redis", "warning", "maxmemory-policy is allkeys-lru", "change it"))
    assert checked()["exit_code"] == 0

    findings.append(Finding("database", "wrong", "no answer", "start it"))
    answer = checked()
    assert answer["exit_code"] == 1
    assert answer["ok"] is False
    assert answer["checks"][-1] == {
        "check": "database",
        "state": "wrong",
        "detail": "no answer",
        "advice": "start it",
    }


# run


NEEDED = {
    "ONCEPOOL_APP": "a:b",
    "ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS": "k:1",
    "ONCEPOOL_KAFKA_TOPICS": "t",
    "ONCEPOOL_DATABASE_URL": "postgresql://h/d",
    "ONCEPOOL_REDIS_URL": "redis://h",
}


@pytest.mark.parametrize("code", [0, 1, 3])
def test_run_ends_with_the_services_code(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    seen: list[Settings] = []

    def run_service(settings: Settings) -> int:
        seen.append(settings)
        return code

    monkeypatch.setattr("consumer.service.service.run_service", run_service)
    monkeypatch.setattr(run_command, "configure", lambda *_: None)

    result = oncepool("run", "shop:app", "--workers", "2", env=NEEDED)

    assert result.exit_code == code
    assert (seen[0].app, seen[0].workers) == ("shop:app", 2)


@pytest.mark.parametrize("name", NEEDED)
def test_run_needs_all_services_and_the_app(name: str) -> None:
    result = oncepool("run", env={k: v for k, v in NEEDED.items() if k != name})

    assert result.exit_code == 1
    assert name in result.stderr


def test_it_tells_its_version() -> None:
    done = CliRunner().invoke(cli.app, ["--version"])

    assert done.exit_code == 0
    assert done.stdout == f"oncepool {version('oncepool')}\n"
