"""Standard streams that are not as a process would like them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_what_is_closed_leads_nowhere_in_the_process_and_its_children(tmp_path: Path) -> None:
    code = (
        "import os, socket, subprocess, sys\n"
        "from processing.ipc.standard_streams import open_missing\n"
        "open_missing()\n"
        "print('lost')\n"
        "sys.stderr.write('lost')\n"
        "child = 'import sys; print(sys.stdout.fileno(), file=open(sys.argv[1], \"w\"))'\n"
        "subprocess.run([sys.executable, '-c', child, sys.argv[1]], check=True)\n"
        "sys.exit(40 + socket.socket().fileno())\n"
    )
    told = tmp_path / "told"
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", code, told], check=False
    )
    assert told.read_text() == "1\n"
    assert done.returncode > 42, "a socket has the number of a standard stream"


def test_what_cannot_be_written_does_not_change_the_exit_code() -> None:
    code = (
        "import threading\n"
        "from processing.ipc.standard_streams import exit_at_once\n"
        "threading.Thread(target=threading.Event().wait).start()\n"
        "print('nobody reads this')\n"
        "exit_at_once(5)\n"
    )
    reader, writer = os.pipe()
    os.close(reader)
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=writer, env=buffered, timeout=100, check=False
    )
    os.close(writer)
    assert done.returncode == 5
