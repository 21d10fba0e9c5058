"""What the main process loads: it touches neither database nor Redis nor user code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]

LOAD = """
import importlib, pkgutil, sys
for package in ("consumer.service", "consumer.intake", "processing.pool", "processing.ipc"):
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__, package + "."):
        importlib.import_module(module.name)
print(*sys.modules, sep="\\n")
"""

NEVER = (
    *("psycopg", "redis", "feedback.journal", "feedback.operations", "feedback.client"),
    *("processing.worker", "processing.handlers", "processing.maintenance", "processing.cluster"),
)


def test_the_main_process_loads_no_database_no_redis_and_no_user_code() -> None:
    run = subprocess.run(
        [sys.executable, "-c", LOAD], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = run.stdout.split()
    assert "consumer.service.wiring" in loaded
    assert "processing.pool.supervisor" in loaded
    within = tuple(f"{name}." for name in NEVER)
    assert [name for name in loaded if name in NEVER or name.startswith(within)] == []
