"""Where a process uses its CPU: notes of the function that its main thread is in, by its own clock.

A timer of the system counts the CPU of the main thread alone and sends a signal every few
milliseconds of it; so a wait is never noted, and another thread's work never blamed on this one. A
note is the innermost function of the project that is on the stack: what a library does for it is
its own. Beside the notes stands what CPU each thread of Python's has used so far, by its name, and
the process; the rest is of threads that are none of Python's.

The system looks at such timers when it counts time, every 4 ms as a rule: at 40,000 requests a
second that is one note in some hundreds of requests, and costs less than a hundredth.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import orjson

FOLDER = "SAMPLES"
"""Environment variable: where the notes go, a file a process."""
ROOT = Path(__file__).parents[1]
OURS = ("consumer/", "processing/", "feedback/")
EVERY = 0.001
"""Seconds of CPU between two notes, at least."""
AT_ONCE = 20
"""Notes written at once."""
NOWHERE = "?"
"""Of a stack without a function of the project."""
MAIN, OTHERS = "MainThread", "not Python's"
_THREAD_CPU, _SIGEV_THREAD_ID = 3, 4  # CLOCK_THREAD_CPUTIME_ID of who makes the timer; see sigevent


class Sampler:
    """Notes where the main thread of this process is; made and armed in that thread."""

    def __init__(self, process: str, folder: Path, root: Path = ROOT) -> None:
        """`process`: what it is, as in `cpu.PARTS`."""
        self._root = f"{root}{os.sep}"
        self._known: dict[CodeType, str | None] = {}
        self._notes: list[tuple[float, str]] = []
        path = folder / f"{process}-{os.getpid()}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._timer = ctypes.c_void_p()

    def arm(self) -> None:
        """Begins. Raises OSError where the system has no such timer."""
        signal.signal(signal.SIGPROF, self._note)
        thread = threading.get_native_id()
        event = struct.pack("=QiiI44x", 0, signal.SIGPROF, _SIGEV_THREAD_ID, thread)
        self._check(self._libc.timer_create(_THREAD_CPU, event, ctypes.byref(self._timer)))
        self._set(EVERY)

    def disarm(self) -> None:
        """Ends, and writes what is left: a signal that comes to an interpreter at its end kills."""
        self._set(0.0)
        signal.signal(signal.SIGPROF, signal.SIG_IGN)
        self._write()

    def _set(self, seconds: float) -> None:
        every = (0, int(seconds * 1e9))
        spec = struct.pack("=qqqq", *every, *every)
        self._check(self._libc.timer_settime(self._timer, 0, spec, None))

    @staticmethod
    def _check(result: int) -> None:
        if result != 0:
            raise OSError(ctypes.get_errno(), "no timer of a thread's CPU")

    def _note(self, _number: int, frame: FrameType | None) -> None:
        self._notes.append((time.monotonic(), self._place(frame)))
        if len(self._notes) >= AT_ONCE:
            self._write()

    def _place(self, frame: FrameType | None) -> str:
        while frame is not None:
            code = frame.f_code
            if code not in self._known:
                self._known[code] = self._named(code)
            if (place := self._known[code]) is not None:
                return place
            frame = frame.f_back
        return NOWHERE

    def _named(self, code: CodeType) -> str | None:
        """`path:function` of the project's own; None of what is not."""
        if not code.co_filename.startswith(self._root):
            return None
        path = code.co_filename[len(self._root) :]
        return f"{path}:{code.co_qualname}" if path.startswith(OURS) else None

    def _write(self) -> None:
        """By one call of the system, as another note may come in the middle of it."""
        notes, self._notes = self._notes, []
        threads: dict[str, float] = {}
        for ident, thread in list(threading._active.items()):  # type: ignore[attr-defined]  # noqa: SLF001 - its public way takes a lock that the main thread may hold
            used = time.clock_gettime(time.pthread_getcpuclockid(ident))
            threads[thread.name] = threads.get(thread.name, 0.0) + used
        clocks = {"at": time.monotonic(), "process": time.process_time(), "threads": threads}
        lines = [orjson.dumps(note) for note in notes]
        os.write(self._file, b"\n".join([*lines, orjson.dumps(clocks), b""]))


@dataclass(slots=True)
class Sampled:
    """What the processes of a kind have noted."""

    places: Counter[str] = field(default_factory=Counter)
    """Place -> notes of main threads."""
    threads: dict[str, float] = field(default_factory=dict)
    """Thread -> CPU seconds; OTHERS has what is none of Python's."""

    def shares(self, step_of: Callable[[str], str]) -> dict[str, float]:
        """Step -> its share of all CPU: of the main thread by step, of the others by name.

        Empty where nothing was noted.
        """
        total, notes = sum(self.threads.values()), self.places.total()
        if not (total and notes):
            return {}
        found: dict[str, float] = {}
        for place, count in self.places.items():
            step = step_of(place)
            found[step] = found.get(step, 0.0) + self.threads[MAIN] / total * count / notes
        others = {f"thread: {n}": s / total for n, s in self.threads.items() if n != MAIN}
        return found | others


def sampled(folder: Path, begin: float, end: float) -> dict[str, Sampled]:
    """Process -> what was noted between two times of the monotonic clock, by all of its kind."""
    found: dict[str, Sampled] = {}
    for path in sorted(folder.iterdir()):
        kind = found.setdefault(path.name.partition("-")[0], Sampled())
        clocks: list[Any] = []
        for line in map(orjson.loads, path.read_bytes().splitlines()):
            if isinstance(line, dict):
                clocks += [line] if begin <= line["at"] <= end else []
            elif begin <= line[0] <= end:
                kind.places[line[1]] += 1
        for thread, seconds in _between(clocks).items():
            kind.threads[thread] = kind.threads.get(thread, 0.0) + seconds
    return found


def _between(clocks: list[Any]) -> dict[str, float]:
    """Thread -> CPU seconds from the first look at the clocks to the last one that saw it."""
    if len(clocks) < 2:
        return {}
    first, last = clocks[0], clocks[-1]
    latest = {name: seconds for one in clocks for name, seconds in one["threads"].items()}
    spent = {name: seconds - first["threads"].get(name, 0.0) for name, seconds in latest.items()}
    rest = last["process"] - first["process"] - sum(spent.values())
    return {**spent, OTHERS: max(0.0, rest)}
