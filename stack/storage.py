"""A broker's storage without a JVM that formats it: the records that every node begins with, kept.

What Kafka's tool writes is the same for each node and cluster, but for `meta.properties`. Starting
it takes a second of CPU, so it does that once for each set of jars.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from stack.plan import new_cluster

META = "meta.properties"
RECORDS = "bootstrap.checkpoint"


def first_records(jars: Path) -> Path:
    """Where the records of these jars stand, if a broker was formatted with them."""
    return jars.with_name(f"{jars.name}-{RECORDS}")


def keep_records(data: Path, kept: Path) -> None:
    """Keeps those of a folder that was formatted; nothing where that can't be written."""
    with contextlib.suppress(OSError):
        draft = kept.with_name(f"{kept.name}-{os.getpid()}")
        shutil.copyfile(data / RECORDS, draft)
        draft.rename(kept)


def write_storage(data: Path, kept: Path, cluster: str, node: int) -> None:
    """Makes the folder as the tool would. It is formatted once META is there, so that comes last.

    Raises OSError.
    """
    data.mkdir(exist_ok=True)
    shutil.copyfile(kept, data / RECORDS)
    # The id of a folder has the form of a cluster's.
    fields = {"version": 1, "cluster.id": cluster, "node.id": node, "directory.id": new_cluster()}
    draft = data / f"{META}.tmp"
    draft.write_text("".join(f"{name}={value}\n" for name, value in fields.items()))
    draft.rename(data / META)
