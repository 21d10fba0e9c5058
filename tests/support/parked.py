"""Messages that an instance does not start, as its maintenance process has them parked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import psycopg

from feedback.contract.record import Record
from feedback.status.status import StatusWrite
from processing.ipc.frames import Frame, PartAnswered
from processing.logs import get_logger
from processing.maintenance.dead_backends import DeadBackends
from processing.maintenance.reporting import Reporting
from processing.maintenance.unstarted import UnstartedRecords
from processing.maintenance.unstarted_handling import UnstartedHandling
from processing.settings import MaintenanceSettings


def park_records(
    url: str,
    schema: str,
    records: Sequence[Record],
    *,
    comparable: Mapping[str, bool] | None = None,
    lost: Sequence[tuple[int, int]] = (),
) -> list[StatusWrite]:
    """What is published of records that are parked; all of them have been answered for then.

    `comparable`: of the app's types, whether producers can make their fingerprints; `lost`: they
    are suspects.
    """
    told: list[StatusWrite] = []
    frames: list[Frame] = []
    settings = MaintenanceSettings("here", url, schema, "redis://nowhere", "p", {})
    reporting = Reporting(frames.append, told.extend, lambda _: None, 60)
    log = get_logger("test")
    unstarted = UnstartedHandling(settings, reporting, log, DeadBackends(log))
    unstarted.park(
        UnstartedRecords(
            1,
            "parked",
            list(records),
            [],
            list(lost),
            [],
            limited=True,
            comparable=comparable or {},
        )
    )
    with psycopg.connect(url, autocommit=True) as connection:
        while unstarted.parts or unstarted.letters:
            unstarted.park_next(connection)
            unstarted.write_letters(connection)
    assert sum(f.answered for f in frames if isinstance(f, PartAnswered)) == len(records)
    return told
