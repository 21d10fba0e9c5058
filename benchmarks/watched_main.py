"""Oncepool's program, whose main process is watched from within.

    python -m benchmarks.watched_main run

With SAMPLES in the environment it notes where its CPU goes (benchmarks/sampling.py), with STAMPS
when what happens (benchmarks/stamps.py). Workers are watched by the app that they load
(benchmarks/watched_app.py).
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from benchmarks import sampling, stamps


def main() -> None:
    if folder := os.environ.get(stamps.FOLDER):
        stamps.watch_main(Path(folder))
    sampler = None
    if folder := os.environ.get(sampling.FOLDER):
        sampler = sampling.Sampler("main", Path(folder))
        sampler.arm()
    sys.argv[0] = "oncepool"
    try:
        runpy.run_module("consumer", run_name="__main__")
    finally:
        if sampler is not None:
            sampler.disarm()


if __name__ == "__main__":
    main()
