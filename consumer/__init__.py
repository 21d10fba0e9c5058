"""The main process: command line, settings, the loop, signals and shutdown."""
