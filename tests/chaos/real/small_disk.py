"""A file system of a few MiB, to be filled."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from pathlib import Path


class SmallDisk:
    """A small file system that can be filled to its end; needs the right to mount."""

    def __init__(self, folder: Path, size: int) -> None:
        """`size`: in MiB."""
        self.folder = folder
        self._ballast = folder / "ballast"
        folder.mkdir(parents=True, exist_ok=True)
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}m,mode=0777", "tmpfs", folder],
            check=False, capture_output=True,
        )  # fmt: skip
        self.mounted = mounted.returncode == 0

    def fill(self) -> int:
        """Takes what is free; how many bytes that were."""
        with self._ballast.open("wb", buffering=0) as ballast:
            for size in (1 << 20, 4096):
                with contextlib.suppress(OSError):
                    while size == os.write(ballast.fileno(), b"\0" * size):
                        pass
        return self._ballast.stat().st_size

    def is_full(self) -> bool:
        """Whether nothing more can be written."""
        more = self.folder / "more"
        try:
            more.write_bytes(b"0" * 4096)
        except OSError as error:
            return error.errno == errno.ENOSPC
        finally:
            more.unlink(missing_ok=True)
        return False

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def close(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "-l", self.folder], check=False, capture_output=True)
            self.mounted = False
