"""Ctrl-C while a command is still being imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

EARLY = """
import os, signal, sys
from consumer.__main__ import main

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "consumer.cli":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
main()
"""


@pytest.mark.parametrize(
    "arguments, code",
    [
        (["stats", "--watch"], 0),
        (["dead-letters", "export", "f", "--follow"], 0),
        (["stats"], 130),
        (["send", "stats", "--watch"], 130),
    ],
)
def test_it_ends_as_it_would_later(arguments: list[str], code: int) -> None:
    command = [sys.executable, "-c", EARLY, *arguments]
    ended = subprocess.run(command, check=False, capture_output=True)
    assert (ended.returncode, ended.stderr) == (code, b"")
