"""The service as the child of ``run --reload``: it drains when that one is killed.

    python -m consumer.service.reloaded PARENT_PID ARGUMENTS

The arguments are those of `oncepool`.
"""

from __future__ import annotations

import runpy
import sys

from processing.ipc.parent_watch import end_with_parent


def main() -> None:
    """Is ``python -m consumer`` from here on."""
    end_with_parent(int(sys.argv.pop(1)))
    runpy.run_module("consumer", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
