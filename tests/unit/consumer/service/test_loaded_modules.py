"""What processes load: main neither database nor Redis nor user code, none of them rich."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]

LOAD = """
import importlib, pkgutil, sys
for package in sys.argv[1:]:
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__, package + "."):
        importlib.import_module(module.name)
print(*sys.modules, sep="\\n")
"""

NEVER = (
    *("psycopg", "redis", "feedback.journal", "feedback.operations", "feedback.client"),
    *("processing.worker", "processing.handlers", "processing.maintenance", "processing.cluster"),
)


def loaded(*packages: str) -> list[str]:
    run = subprocess.run(
        [sys.executable, "-c", LOAD, *packages],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.split()


def of(modules: list[str], *packages: str) -> list[str]:
    within = tuple(f"{name}." for name in packages)
    return [name for name in modules if name in packages or name.startswith(within)]


def test_the_main_process_loads_no_database_no_redis_and_no_user_code() -> None:
    modules = loaded("consumer.service", "consumer.intake", "processing.pool", "processing.ipc")
    assert "consumer.service.wiring" in modules
    assert "processing.pool.supervisor" in modules
    assert of(modules, *NEVER) == []


def test_the_processes_beside_it_load_nothing_that_draws() -> None:
    """A worker starts again after each death, and twice as slowly with it."""
    modules = loaded("processing.worker", "processing.maintenance")
    assert "processing.worker.__main__" in modules
    assert "structlog.stdlib" in modules
    assert of(modules, "rich", "pygments") == []


def test_the_processes_beside_it_load_nothing_that_measures_redis() -> None:
    """Its client would load it where it is installed, whether anybody measures or not."""
    for process in ("processing.worker", "processing.maintenance"):
        modules = loaded(process)
        assert "redis.observability.metrics" in modules
        assert of(modules, "opentelemetry.sdk") == []
