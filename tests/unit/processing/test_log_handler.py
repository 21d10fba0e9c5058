"""Log lines whose reader is slow, stops, goes on or is gone."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import pytest

from processing.log_handler import UnblockedHandler, handler_for

FLOOD = 5000


@pytest.fixture(params=["pipe", "socket"])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[Callable[[], str], TextIO]]:
    """What reads all that has arrived, and the stream that is logged to."""
    if request.param == "pipe":
        reader, writer = os.pipe()
    else:
        reader, writer = (end.detach() for end in socket.socketpair())
    os.set_blocking(reader, False)

    def read() -> str:
        found = b""
        try:
            while data := os.read(reader, 1 << 16):
                found += data
        except BlockingIOError:
            pass
        return found.decode()

    with os.fdopen(writer, "w") as stream:
        yield read, stream
    os.close(reader)


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("test", logging.INFO, "", 0, text, (), None)


def test_a_reader_that_stops_holds_nobody_up_and_hears_what_it_missed(
    ends: tuple[Callable[[], str], TextIO],
) -> None:
    read, stream = ends
    handler = handler_for(stream)
    assert isinstance(handler, UnblockedHandler)
    handler.setFormatter(Left())
    for n in range(FLOOD):  # far more than is kept for a reader
        handler.handle(record(f"{n} {'x' * 100}"))
    before = [line for line in read().splitlines() if line]
    handler.handle(record("read again"))
    handler.handle(record("and on"))
    note, *after = [line for line in read().splitlines() if line]

    whole = [line for line in before if len(line.split()[-1]) == 100]
    assert [int(line.split()[0]) for line in whole] == list(range(len(whole)))
    assert 0 < len(whole) < FLOOD
    assert note == f"log lines left out: nobody read them {FLOOD - len(whole)}"
    assert after == ["read again", "and on"]


class Left(logging.Formatter):
    """The text, and how many were left out."""

    def format(self, record: logging.LogRecord) -> str:
        left_out = getattr(record, "left_out", None)
        return record.getMessage() if left_out is None else f"{record.getMessage()} {left_out}"


def test_a_line_longer_than_a_pipe_is_whole_where_it_is_read(
    ends: tuple[Callable[[], str], TextIO],
) -> None:
    read, stream = ends
    handler = handler_for(stream)
    long = "x" * 3000
    for _ in range(3):
        handler.handle(record(long))
        assert read() == f"{long}\n"


def test_a_reader_that_is_gone_changes_nothing() -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        handler = handler_for(stream)
        os.close(reader)
        handler.handle(record("nobody reads this"))


def test_what_is_no_reader_is_written_as_ever(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as stream:
        assert isinstance(handler_for(stream), logging.StreamHandler)


def test_a_closed_file_costs_lines_and_raises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = (tmp_path / "log").open("w")
    handler = handler_for(stream)
    monkeypatch.setattr("sys.stderr", stream)
    stream.close()  # as a handler may do, and the next request's line is not to end the worker

    handler.handle(record("lost"))
