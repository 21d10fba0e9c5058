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
    return run_python(LOAD, *packages).split()


def run_python(code: str, *arguments: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout


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


def test_redis_is_loaded_without_the_sdk_of_opentelemetry() -> None:
    """It asks for it again where an application turns its metrics on."""
    modules = loaded("feedback.status", "processing.cluster", "processing.maintenance")
    assert "redis.client" in modules
    assert of(modules, "opentelemetry.sdk") == []
    in_use = (
        "from feedback.status.redis_library import redis\n"
        "from redis.observability.config import OTelConfig\n"
        "from redis.observability.providers import OTelProviderManager\n"
        "from opentelemetry.metrics import set_meter_provider\n"
        "from opentelemetry.sdk.metrics import MeterProvider\n"
        "set_meter_provider(MeterProvider())\n"
        "print(type(OTelProviderManager(OTelConfig()).get_meter_provider()).__module__)"
    )
    assert run_python(in_use).split() == ["opentelemetry.sdk.metrics._internal"]
