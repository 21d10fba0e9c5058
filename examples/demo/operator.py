"""The demo's operator: does away with the cause, and has the dead requests run again."""

from __future__ import annotations

import subprocess
import sys

import orjson
import psycopg

from examples.demo.place import DemoPlace
from examples.demo.plan import NO_CARRIER, PARCEL
from examples.demo.program import DemoFailed, environment_with

TIMEOUT = 60.0


class Operator:
    """Somebody with a shell, and the right to change the shop's tables."""

    def __init__(self, place: DemoPlace) -> None:
        self._place = place

    def finds_carrier(self) -> None:
        """From now on parcels go where none went before."""
        with psycopg.connect(self._place.database) as database:
            database.execute("INSERT INTO shop.carriers VALUES (%s, 'rocket', 1)", [NO_CARRIER])

    def retries_parcels(self) -> int:
        """`oncepool requests retry` of all dead parcels; how many it moved. Raises DemoFailed."""
        command = ["requests", "retry", "--state", "dead", "--type", PARCEL, "--yes", "--json"]
        done = subprocess.run(
            [sys.executable, "-m", "consumer", *command, "--why", "a carrier was found"],
            cwd=self._place.folder,
            env=environment_with(self._place.environment()),
            capture_output=True,
            timeout=TIMEOUT,
            check=False,  # what it says is part of the error
        )
        if done.returncode != 0:
            told = done.stderr.decode(errors="replace").strip()
            raise DemoFailed(f"`oncepool {' '.join(command)}` ended with {done.returncode}: {told}")
        return len(orjson.loads(done.stdout)["moved"])
