"""Puts a new file in the place of another one, in one go."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

PRIVATE: Final = 0o600
SHARED: Final = 0o666
"""Rights of a new file, less what the umask takes."""


@contextmanager
def replacing(path: Path, rights: int) -> Iterator[BinaryIO]:
    """A file beside that one, which takes its place at the end: a failure leaves the old one.

    It has the owner and the rights of the old one, and these `rights` where there is none. A link
    stays one. Raises OSError.
    """
    path = path.resolve()
    made = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    old = path.stat() if path.exists() else None
    first = rights if old is None else PRIVATE
    try:
        made.touch(first, exist_ok=False)
        with made.open("wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        if old is not None:
            with suppress(PermissionError):
                os.chown(made, old.st_uid, old.st_gid)
            made.chmod(old.st_mode & 0o7777)
        made.replace(path)
    finally:
        made.unlink(missing_ok=True)
