"""``python -m consumer`` is ``oncepool``."""

from __future__ import annotations

import sys
from pathlib import Path

from consumer.config.packages import hidden_package

if __name__ == "__main__":
    # Before the command line, which could not be imported then.
    if hidden := hidden_package(Path.cwd()):
        sys.exit(f"oncepool: {hidden}")
    from consumer.cli import main

    main()
