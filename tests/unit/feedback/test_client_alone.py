"""An installation with the client alone, as `pip install oncepool` makes it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from consumer.__main__ import OF_CONSUMERS

ROOT = Path(__file__).parents[3]
WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)

sys.meta_path.insert(0, Missing())
"""
CLIENT = """
import feedback
from feedback import *
from feedback import AsyncClient, Client, State
from feedback.status.memory_store import MemoryStatusStore

store = MemoryStatusStore()
with_all = Client("127.0.0.1:1", store, "t", delivery_timeout=0.1)
with_all.submit("pay", {"a": 1}, request_id="p", delay=5)
assert with_all.status("p") is None
from feedback import outbox
import processing, processing.testing.plugin
print("fine")
"""


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT.format(names=set(OF_CONSUMERS)) + code],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def test_a_producer_needs_nothing_of_the_consumers() -> None:
    done = python(CLIENT)
    assert done.stdout.strip() == "fine", done.stderr


@pytest.mark.parametrize("arguments", [["check"], ["run", "shop:app"]])
def test_the_program_says_what_to_install(arguments: list[str]) -> None:
    code = f"import sys; sys.argv[1:] = {arguments!r}\nfrom consumer.__main__ import main\nmain()"
    done = python(code)
    assert done.returncode == 1
    assert "pip install 'oncepool[consumer]'" in done.stderr
    assert "Traceback" not in done.stderr
