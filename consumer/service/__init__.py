"""One instance from start to end: signals, shutdown, exit code."""
