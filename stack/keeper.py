"""Takes a stack down when its owner has ended, however that ended.

A process of its own: the owner may be killed with
SIGKILL, and then nobody else is left to clean up.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

FILE = "keeper.pid"
LOG = "keeper.log"
PROGRAM = "import sys; from stack.keeper import main; main(*sys.argv[1:])"

_kept: list[subprocess.Popen[bytes]] = []
"""Keepers that this process started: kept so that their exit is reaped."""


def engage(data: Path, owner: int) -> None:
    """Starts a keeper for the stack in `data`, unless it has one."""
    import psutil

    if _keeper(data) is not None:
        return
    created = psutil.Process(owner).create_time()
    package = Path(__file__).resolve().parent
    path = os.pathsep.join(filter(None, (str(package.parent), os.environ.get("PYTHONPATH"))))
    with (data / LOG).open("wb") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(data), str(owner), repr(created)],
            cwd="/",
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    (data / FILE).write_text(str(keeper.pid))
    _kept.append(keeper)


def dismiss(data: Path) -> None:
    """Ends the keeper of the stack in `data`, if there is one and it is not this process."""
    pid = _keeper(data)
    if pid is not None and pid != os.getpid():
        import psutil

        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            process.kill()
            process.wait(5.0)
    for keeper in list(_kept):
        if keeper.poll() is not None:
            _kept.remove(keeper)
    (data / FILE).unlink(missing_ok=True)
    (data / LOG).unlink(missing_ok=True)


def _keeper(data: Path) -> int | None:
    """The pid of the keeper of `data`, if it lives."""
    try:
        pid = int((data / FILE).read_text())
    except (OSError, ValueError):
        return None
    import psutil

    try:
        command = psutil.Process(pid).cmdline()
    except psutil.Error:
        return None
    return pid if PROGRAM in command and str(data) in command else None


def main(data: str, owner: str, created: str) -> None:
    """Waits for the owner's end, then takes the stack down."""
    import psutil

    from stack.local import Stack
    from stack.plan import load

    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(int(owner))
        # A pid may have been given to another process by now.
        if abs(process.create_time() - float(created)) < 1.0:
            process.wait()
    plan = load(Path(data))
    if plan is not None:
        Stack(Path(data), plan).down()
