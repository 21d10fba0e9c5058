"""``python -m consumer`` is ``oncepool``, the program: what has to be so before it is imported."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path

from consumer.config.packages import hidden_package

INTERRUPTED = 130
"""Exit code of a command that Ctrl-C ended, as shells have it."""
OF_CONSUMERS = ("typer", "rich", "pydantic", "pydantic_settings", "psycopg", "structlog", "cronsim")
"""What the extra `consumer` brings, and the client alone does not need."""
LASTING = ("run", "relay", "gateway")
"""Commands that go on until a signal asks them to end."""
WATCHING = {"stats": "--watch", "dead-letters": "--follow"}
"""Options of others, with which Ctrl-C is how they end."""


def main() -> None:
    """The console script."""
    if sys.argv[1:2] and sys.argv[1] in LASTING:
        _end_at_once()
    elif sys.argv[1:2] and WATCHING.get(sys.argv[1]) in sys.argv:
        signal.signal(signal.SIGINT, lambda *_: os._exit(0))  # until they take it themselves
    gc.disable()  # until the command is there: imports leave no garbage, and take a tenth longer
    try:
        from consumer.cli import main
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except ModuleNotFoundError as error:
        if error.name not in OF_CONSUMERS:
            raise
        sys.exit(
            f"oncepool: {error.name} is missing, as where only the client is installed:"
            " pip install 'oncepool[consumer]'"
        )

    main()


def _end_at_once() -> None:
    """Until the command takes signals itself there is nothing to be drained.

    As PID 1 of a container it would not end at all without a handler, and otherwise with a signal's
    exit code, which says that something went wrong.
    """
    from processing.ipc.end_signals import handled

    for number in handled():
        # Not by an exception: whatever is imported at the moment might catch it.
        signal.signal(number, lambda *_: os._exit(0))


if __name__ == "__main__":
    # Before the command line, which could not be imported then.
    if hidden := hidden_package(Path.cwd()):
        sys.exit(f"oncepool: {hidden}")
    main()
