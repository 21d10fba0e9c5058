"""What keeps an instance from starting is said last, and in the log; `check` finds it as well."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from tests.support.programs import ROOT
from tests.support.service import WAIT, Bench
from tests.support.waiting import eventually

APP = "from processing import App\napp = App()\n"
HANDLER = '@app.handler("a.b")\ndef ab(payload: dict) -> dict:\n    return {}\n'
BROKEN = {
    "raises": (
        APP
        + HANDLER
        + "@app.on_worker_start\ndef start():\n    raise OSError('no key:\\n\\tno answer\\n')\n",
        "OSError: no key: no answer, raised by the hook on_worker_start",
    ),
    "async": (
        APP + HANDLER.replace("def ab", "async def ab"),
        "it is async, and its effects are in the journal's transaction",
    ),
    "imports": ("import nosuchmodule\n", "No module named 'nosuchmodule'"),
    "syntax": ("def x(:\n", "SyntaxError"),
    "bare": (APP + HANDLER.replace('("a.b")', ""), "write @app.handler('payment.create')"),
    "unknown": (APP + HANDLER.replace("dict)", "dict, gateway)"), "parameter 'gateway' is unknown"),
    "empty": (APP, "the app has no handlers"),
    "attribute": (APP.replace("app =", "application ="), "did you mean 'application'"),
}

COMMON = ("raises", "async")
CONSOLE_SCRIPT = "import sys; sys.path.pop(0); from consumer.__main__ import main; main()"

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(bench: Bench, tmp_path: Path) -> Run:
    """A command in a folder of the test's own, where its app is."""

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "consumer", *arguments],
            cwd=tmp_path,
            env={
                **os.environ,
                **bench.environment,
                "ONCEPOOL_LOG_FORMAT": "auto",
                "PYTHONPATH": str(ROOT),
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return call


@pytest.mark.parametrize(
    "name",
    [n if n in COMMON else pytest.param(n, marks=pytest.mark.long) for n in BROKEN],
)
def test_the_cause_is_told_last_and_in_the_log(run: Run, tmp_path: Path, name: str) -> None:
    source, cause = BROKEN[name]
    (tmp_path / f"{name}.py").write_text(source)

    done = run("run", f"{name}:app", "--workers", "2")

    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[-1].startswith("oncepool: ")
    assert cause in lines[-1]
    assert "Traceback" not in done.stderr
    assert "processing/" not in done.stderr  # frames of ours help nobody
    told = [orjson.loads(line) for line in lines if line.startswith("{")]
    assert "worker could not start" not in [line["message"] for line in told]
    # Nobody looks on: the log is JSON, and who reads it by a program finds the cause in its line.
    [ending] = [line for line in told if line["message"] == "ending"]
    assert cause in ending["reason"]
    assert done.stderr.count(cause) == 2


@pytest.mark.long
def test_with_json_logs_the_cause_stands_in_an_object_too(run: Run, tmp_path: Path) -> None:
    name, (source, cause) = next(iter(BROKEN.items()))
    (tmp_path / f"{name}.py").write_text(source)

    done = run("run", f"{name}:app", "--workers", "1", "--log-format", "json")

    assert done.returncode == 1
    lines = [orjson.loads(line) for line in done.stderr.splitlines()]
    [ending] = [line for line in lines if line["message"] == "ending"]
    assert cause in ending["reason"]


@pytest.mark.parametrize(
    "name",
    [n if n == "syntax" else pytest.param(n, marks=pytest.mark.long) for n in BROKEN],
)
def test_check_finds_what_run_refuses(run: Run, tmp_path: Path, name: str) -> None:
    source, cause = BROKEN[name]
    (tmp_path / f"{name}.py").write_text(source)

    done = run("check", f"{name}:app", "--json")

    assert done.returncode == 1
    (app,) = [check for check in orjson.loads(done.stdout)["checks"] if check["check"] == "app"]
    assert app["state"] == "wrong"
    assert cause in app["detail"]


def test_properties_that_librdkafka_refuses_are_told_as_all_else(run: Run) -> None:
    done = run("run", "any:app", "--kafka-properties", '{"nonsense": 1}')

    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("oncepool: librdkafka refuses the consumer's properties")


def test_a_module_without_its_app_is_completed(run: Run) -> None:
    done = run("run", "shop.requests")

    assert done.returncode == 2
    assert "shop.requests:app" in done.stderr
    assert "pattern" not in done.stderr


@pytest.mark.parametrize(
    "arguments", [("run", "--grace", "-3"), ("requests", "list", "--limit", "-1")]
)
def test_wrong_values_of_options_are_wrong_usage(run: Run, arguments: tuple[str, ...]) -> None:
    assert run(*arguments).returncode == 2


def test_the_first_start_reaches_the_database_it_never_lost(bench: Bench) -> None:
    instance = bench.start()

    assert "again" not in instance.log


@pytest.mark.parametrize(
    "theirs,command",
    [
        ("feedback.py", ("-m", "consumer")),
        ("consumer.py", ("-c", CONSOLE_SCRIPT)),
        *(
            pytest.param(*pair, marks=pytest.mark.long)
            for pair in [
                ("processing/__init__.py", ("-m", "consumer")),
                ("processing.py", ("-c", CONSOLE_SCRIPT)),
                ("feedback/__init__.py", ("-c", CONSOLE_SCRIPT)),
                ("stack/__init__.py", ("-m", "consumer")),
                ("stack.py", ("-c", CONSOLE_SCRIPT)),
            ]
        ),
    ],
)
def test_a_module_that_hides_one_of_ours_is_named(
    bench: Bench, tmp_path: Path, command: tuple[str, ...], theirs: str
) -> None:
    name = theirs.partition("/")[0].removesuffix(".py")
    file = tmp_path / theirs
    file.parent.mkdir(exist_ok=True)
    file.write_text("")
    (tmp_path / "shop.py").write_text(APP + HANDLER)

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *command, *arguments],
            cwd=tmp_path,
            env={**os.environ, **bench.environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    done = call("run", "shop:app")

    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    hidden = file.parent if file.name == "__init__.py" else file
    assert line.startswith(f"oncepool: {hidden} hides Oncepool's package {name} ({ROOT / name})")
    assert str(hidden) in (checked := call("check", "shop:app", "--json")).stdout + checked.stderr
    assert checked.returncode == 1


def test_a_folder_without_modules_hides_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "processing").mkdir()
    (tmp_path / "shop.py").write_text(APP + HANDLER)

    assert '"state":"wrong"' not in run("check", "shop:app", "--json").stdout


def test_an_instance_that_never_reached_its_database_takes_nothing_from_others(
    bench: Bench,
) -> None:
    good = bench.start()
    away = "postgresql://nobody@127.0.0.1:1/nowhere"
    bad = bench.start(wait=False, ONCEPOOL_DATABASE_URL=away)
    # Told a second or more after the workers were there, which is when others join.
    eventually(lambda: [one.get("workers") for one in bench.facts()].count(2) == 2, WAIT)
    assert "] running" not in bad.log
    assert "partitions assigned" not in bad.log
    for _ in range(4):
        assert bench.outcome("effect", {"table": bench.table}).state == "done"
    assert "partitions revoked" not in good.log
    assert bad.stop() == 0


@pytest.mark.parametrize(
    "command, number",
    [
        ("run", signal.SIGTERM),
        ("run", signal.SIGINT),
        ("relay", signal.SIGTERM),
        ("gateway", signal.SIGTERM),
    ],
)
def test_a_signal_that_comes_while_it_is_imported_ends_it_in_peace(
    tmp_path: Path, command: str, number: signal.Signals
) -> None:
    importing = tmp_path / "importing"
    slow = f"import pathlib, time; pathlib.Path({str(importing)!r}).touch(); time.sleep(60)\n"
    (tmp_path / "typer.py").write_text(slow)
    process = subprocess.Popen(
        [sys.executable, "-m", "consumer", command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    eventually(importing.exists, WAIT)
    process.send_signal(number)
    assert process.wait(WAIT) == 0
