"""``oncepool run --reload``: restarts the service when its code changes. For development only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType

from consumer.errors import ConsumerError
from processing.ipc.end_signals import handled
from processing.logs import get_logger

log = get_logger("reload")


class ReloadMissing(ConsumerError):
    """The library that watches files is not installed."""


def service_command(arguments: list[str]) -> list[str]:
    """The command that runs the service itself, from this process's arguments."""
    child = [sys.executable, "-m", "consumer.service.reloaded", str(os.getpid())]
    return [*child, *(a for a in arguments if a != "--reload")]


def run_reloading(folder: Path | None = None) -> int:
    """Runs the service as a child and restarts it at every change of a Python file in `folder`.

    Returns the exit code of the last child. Between its own end and the next change the service
    stays away: a syntax error waits for its correction.
    """
    try:
        import watchfiles
    except ImportError:
        raise ReloadMissing(
            "--reload needs the package watchfiles: pip install 'oncepool[reload]'"
        ) from None
    stop = threading.Event()
    drains = threading.Event()
    running: list[subprocess.Popen[bytes]] = []

    def on_signal(number: int, _frame: FrameType | None) -> None:
        ending = (stop.is_set() or drains.is_set()) and running[-1].poll() is None
        if ending and number != signal.SIGHUP:  # which a closed terminal sends twice
            # It has been told to end; each further signal hastens the service's shutdown.
            running[-1].terminate()
        stop.set()

    for number in handled():
        signal.signal(number, on_signal)
    # Its settings are read again by each child, from the environment and the file as they are then.
    environment = {k: v for k, v in os.environ.items() if k != "ONCEPOOL_RELOAD"}
    command = service_command(sys.argv[1:])
    running.append(_start(command, environment))
    for changes in watchfiles.watch(
        folder or Path.cwd(),
        watch_filter=watchfiles.PythonFilter(),
        stop_event=stop,
        raise_interrupt=False,
        yield_on_timeout=True,
        rust_timeout=500,
    ):
        if not changes:
            continue
        log.info("code changed, restarting", files=sorted({path for _, path in changes})[:5])
        drains.set()
        code = _end(running[-1])
        if stop.is_set():
            return code
        drains.clear()
        running[:] = [_start(command, environment)]
    return _end(running[-1])


def _start(command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    # A process group of its own: Ctrl-C reaches this process only, which then says SIGTERM once.
    return subprocess.Popen(command, env=environment, process_group=0)


def _end(child: subprocess.Popen[bytes]) -> int:
    # SIGTERM drains; the grace of the service's own settings bounds how long that takes.
    if child.poll() is None:
        child.terminate()
    return child.wait()
