"""A bound on how many processes and threads one instance may have, by a control group of its own.

The kernel's limit for a user (RLIMIT_NPROC) counts all that the user has, and does not bind root.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

ROOTS = (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup"))
"""Of the first and the second version of control groups."""


class ProcessLimit:
    """A group that processes are put into; it needs the right to make one."""

    def __init__(self, root: Path, name: str) -> None:
        """Raises OSError where there is no such right."""
        self._root, self._group = root, root / name
        self._group.mkdir()

    @classmethod
    def made(cls, name: str) -> ProcessLimit | None:
        """One of them; None where no group that counts processes can be made here."""
        for root in ROOTS:
            with contextlib.suppress(OSError):
                limit = cls(root, name)
                if (limit._group / "pids.max").exists():
                    return limit
                limit.close()
        return None

    def bind(self, pids: list[int]) -> None:
        """From now on none of these, nor what they start, can start anything."""
        (self._group / "pids.max").write_text("1")
        self._move(pids, self._group)

    def close(self) -> None:
        """Lets all of them go."""
        with contextlib.suppress(OSError):
            (self._group / "pids.max").write_text("max")
            self._move(self._members(), self._root)
        with contextlib.suppress(OSError):
            self._group.rmdir()

    def _members(self) -> list[int]:
        return [int(pid) for pid in (self._group / "cgroup.procs").read_text().split()]

    @staticmethod
    def _move(pids: list[int], group: Path) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                (group / "cgroup.procs").write_text(str(pid))


def can_limit_processes() -> bool:
    """Whether such a group can be made here."""
    limit = ProcessLimit.made(f"oncepool-try-{os.getpid()}")
    if limit is not None:
        limit.close()
    return limit is not None
