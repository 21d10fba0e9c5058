"""Where `dead-letters export` writes: what was there keeps what it is, and whose it is."""

from __future__ import annotations

import os
import stat
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
import typer

from consumer.commands.dead_letter_files import _continued, _replacing

LINE = (
    b'{"kind":"message","id":7,"topic":"t","partition":0,"kafka_offset":1,'
    b'"produced_at":"2026-01-01T00:00:00Z","reason":"malformed","at":"2026-01-01T00:00:00Z"}'
)


def export(path: Path, text: bytes = b"new\n") -> None:
    with _replacing(str(path)) as out:
        out.write(text)


def follow(path: Path) -> int:
    """How many entries the file has."""
    with ExitStack() as stack:
        _, seen = _continued(stack, str(path))
        return len(seen)


def rights(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_keeps_its_rights_and_a_new_one_has_those_of_any_new_file(tmp_path: Path) -> None:
    secret, new, other = (tmp_path / name for name in ("secret", "new", "other"))
    secret.touch(0o600)
    other.touch()
    export(secret)
    export(new)
    assert (secret.read_bytes(), rights(secret)) == (b"new\n", 0o600)
    assert rights(new) == rights(other)
    assert len(list(tmp_path.iterdir())) == 3


def test_a_link_stays_one(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    link.symlink_to("real")
    export(link)
    assert link.is_symlink()
    assert real.read_bytes() == b"new\n"


@pytest.mark.parametrize("followed", [False, True])
def test_a_pipe_is_written_to(tmp_path: Path, *, followed: bool) -> None:
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    if followed:
        with ExitStack() as stack:
            out, _ = _continued(stack, str(pipe))
            out.write(b"new\n")
    else:
        export(pipe)
    reader.join(10)
    assert got == [b"new\n"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_failure_leaves_the_old_one(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    with pytest.raises(ZeroDivisionError), _replacing(str(file)) as out:
        out.write(b"new" if 1 / 0 else b"")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("text", [b"a\nlast line", b"last line", b'{"a": 1}\n{"b": 2}'])
def test_what_is_no_export_loses_no_line(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "notes"
    file.write_bytes(text)
    with pytest.raises(typer.Exit) as caught:
        follow(file)
    assert caught.value.exit_code == 1
    assert file.read_bytes() == text


def test_a_line_that_was_cut_off_goes_and_one_that_only_lacks_its_end_stays(tmp_path: Path) -> None:
    file = tmp_path / "export"
    file.write_bytes(LINE + b"\n" + LINE[:30])
    assert follow(file) == 1
    assert file.read_bytes() == LINE + b"\n"
    file.write_bytes(LINE)
    assert follow(file) == 1
    assert file.read_bytes() == LINE + b"\n"
