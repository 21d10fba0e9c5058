"""How it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace

import orjson

from processing.ipc.frames import DatabaseState, ProbeDatabase
from processing.ipc.parent_watch import EXIT_ORPHANED
from processing.settings import MaintenanceSettings
from tests.support.maintenance import StartMaintenance
from tests.support.service import runs
from tests.support.waiting import eventually


def test_signals_to_the_group_do_not_end_it(start: StartMaintenance, schema: str) -> None:
    maintenance = start(schema=schema)
    maintenance.ready()
    for number in (signal.SIGINT, signal.SIGTERM):
        maintenance.child.signal(number)

    maintenance.send(ProbeDatabase())
    maintenance.wait_for(DatabaseState)
    assert maintenance.stop() == 0


def test_a_closed_channel_ends_it(start: StartMaintenance, schema: str) -> None:
    maintenance = start(schema=schema)
    maintenance.ready()
    maintenance.child.channel.close()

    assert maintenance.child.wait(60)
    assert maintenance.child.cause == f"exit code {EXIT_ORPHANED}"


PARENT = """
import sys, time, orjson
from processing.ipc.child import Child
child = Child("processing.maintenance", orjson.loads(sys.argv[1]))
print(child.pid, flush=True)
time.sleep(60)
"""


def test_the_death_of_the_main_process_ends_it(settings: MaintenanceSettings, schema: str) -> None:
    facts = orjson.dumps(replace(settings, schema=schema))
    parent = subprocess.Popen([sys.executable, "-c", PARENT, facts], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    os.kill(pid, 0)

    parent.kill()
    parent.wait()
    parent.stdout.close()

    eventually(lambda: not runs(pid))
