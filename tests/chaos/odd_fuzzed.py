"""The process of a fuzzer: reads what it is given, and ends where something is wrong with that.

    python -m tests.chaos.odd_fuzzed [--planted] LIBFUZZER_OPTIONS... CORPUS

Its parent is `odd_fuzz`. `--planted`: reads with a bug, which has to be found.
"""

from __future__ import annotations

import sys
from typing import Any

import atheris  # type: ignore[import-not-found, unused-ignore]

READING = ["feedback.contract", "processing.worker.reading", "processing.worker.task",
           "processing.handlers"]  # fmt: skip
"""What is fuzzed: the fuzzer sees which of its branches are taken."""
PLANTED = "--planted"

with atheris.instrument_imports(include=READING):
    from tests.chaos.odd_reading import decoded, problems, reading


class Wrong(Exception):
    """Something is not read as it has to be."""


def planted(record: Any) -> Any:
    """Reads with a bug that no seed shows: keys that are longer than all of theirs are lost."""
    found = reading._read(record)
    if len(found.key or b"") > 60:
        found.key = None
    return found


def main() -> None:
    read = planted if PLANTED in sys.argv else reading._read

    def one(data: bytes) -> None:
        if wrong := problems(decoded(data), read):
            raise Wrong("; ".join(wrong))

    atheris.Setup([a for a in sys.argv if a != PLANTED], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
