"""The handlers of benchmarks/full_path_app.py, in workers that are watched from within.

See benchmarks/watched_main.py.
"""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks import sampling, stamps
from benchmarks.full_path_app import app

__all__ = ["app"]
_samplers: list[sampling.Sampler] = []


@app.on_worker_start
def begin() -> None:
    """In each worker, before its first chunk."""
    if folder := os.environ.get(stamps.FOLDER):
        stamps.watch_worker(Path(folder))
    if folder := os.environ.get(sampling.FOLDER):
        _samplers.append(sampling.Sampler("worker", Path(folder)))
        _samplers[0].arm()


@app.on_worker_stop
def end() -> None:
    """Before the interpreter ends."""
    for sampler in _samplers:
        sampler.disarm()
