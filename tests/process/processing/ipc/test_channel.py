"""Frames between processes, the slot that they share, and a worker's inbox."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from processing.handlers.stopping import STOPPING
from processing.ipc.channel import BlockingChannel, Channel, ChannelClosed, socket_pair
from processing.ipc.frames import Configure, Frame, Recall, Report, Returned, RunChunk, Stop, encode
from processing.ipc.progress import ProgressSlot
from processing.worker.inbox import Inbox
from tests.support.waiting import eventually

Pair = tuple[Channel, BlockingChannel]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket_pair()
    main, child = Channel(ours), BlockingChannel(theirs)
    yield main, child
    main.close()
    child.close()


def chunk(number: int, records: int = 1, returns: int = 0) -> RunChunk:
    record = ("t", 0, number, 0, b"k", b"v", [], None, None)
    return RunChunk(number, "token", [record] * records, None, returns)


def test_frames_arrive_whole_and_in_order(pair: Pair) -> None:
    main, child = pair
    for n in range(100):
        main.send(chunk(n))
    assert [child.receive() for _ in range(100)] == [chunk(n) for n in range(100)]
    assert child.receive(0.0) is None


def test_main_never_blocks_and_the_rest_follows(pair: Pair) -> None:
    main, child = pair
    big = Configure({"big": b"x" * 8_000_000})
    main.send(big)
    assert main.backlog > 0
    got: list[object] = []
    reader = threading.Thread(target=lambda: got.append(child.receive()))
    reader.start()
    eventually(lambda: main.flush() or main.backlog == 0)
    reader.join(60)
    assert got == [big]


def test_what_a_dead_process_sent_is_still_read(pair: Pair) -> None:
    main, child = pair
    main.send(Stop())
    child.send(Returned(1, []))
    child.send(Returned(2, []))
    child.close()
    assert main.drain() == [Returned(1, []), Returned(2, [])]
    with pytest.raises(ChannelClosed):
        main.receive()
    with pytest.raises(ChannelClosed):
        main.send(Stop())


def test_a_truncated_frame_is_the_end(pair: Pair) -> None:
    main, child = pair
    os.write(child.fileno(), encode(Returned(1, []))[:-2])
    child.close()
    assert main.drain() == []


def test_a_slot_shows_what_runs_to_who_opens_it() -> None:
    slot, descriptor = ProgressSlot.create()
    worker = ProgressSlot.open(descriptor)
    os.close(descriptor)
    assert slot.read() is None
    worker.set(7, 3, 100.0, 2.0)
    running = slot.read()
    assert running is not None
    assert (running.chunk, running.index, running.deadline, running.started) == (7, 3, 102.0, 100.0)
    worker.set(8, None, 100.0, None)
    running = slot.read()
    assert running is not None
    assert (running.chunk, running.index, running.deadline) == (8, None, None)
    worker.clear()
    assert slot.read() is None
    worker.close()
    slot.close()


def test_a_slot_needs_no_room_in_a_file_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/not/there")
    slot, descriptor = ProgressSlot.create()
    assert str(Path(f"/proc/self/fd/{descriptor}").readlink()).startswith("/memfd:")
    os.close(descriptor)
    slot.set(2**40 + 1, 499, 1.0, None)
    running = slot.read()
    assert running is not None
    assert (running.chunk, running.index) == (2**40 + 1, 499)
    slot.close()


def test_what_is_on_its_way_behind_something_given_back_is_given_back_too(pair: Pair) -> None:
    main, child = pair
    slot, descriptor = ProgressSlot.create()
    os.close(descriptor)
    inbox = Inbox(child, slot, lambda: None)
    main.send(chunk(1))
    main.send(chunk(2))
    first = inbox.next()
    assert first is not None
    assert first.start(0, None)
    first.unclear.append(0)
    eventually(lambda: len(inbox._chunks) == 2)
    inbox.report(first, first.finish())
    # Main had not heard of either when it sent this one.
    main.send(chunk(3))
    second, third = inbox.next(), inbox.next()
    assert second is not None
    assert third is not None
    assert second.recalled_whole
    assert third.recalled_whole
    frames: list[Frame] = []
    eventually(lambda: frames.extend(main.receive()) or len(frames) == 3)
    returned, report, late = frames
    assert (returned, late) == (Returned(2, [0]), Returned(3, [0]))
    assert isinstance(report, Report)
    for work in (second, third):
        inbox.report(work, work.finish())
    main.send(chunk(4, returns=3))
    fourth = inbox.next()
    assert fourth is not None
    assert fourth.start(0, None)


def test_a_chunk_with_a_seat_is_shown_there_and_is_not_told_what_another_one_was(
    pair: Pair,
) -> None:
    main, child = pair
    slot, descriptor = ProgressSlot.create()
    os.close(descriptor)
    inbox = Inbox(child, slot, lambda: None)
    main.send(chunk(1)._replace(seat=3))
    plain = inbox.next()
    assert plain is not None
    assert not plain.seated, "this one's app has nothing that could be called in a seat"
    inbox.calls = Mock()
    main.send(chunk(2)._replace(seat=3))
    seated = inbox.next()
    assert seated is not None
    STOPPING.set()  # a request that was cancelled, and has ended
    try:
        assert seated.start(0, 5.0)
        assert not STOPPING.is_set()
    finally:
        STOPPING.clear()
    shown = slot.seat(3).read()
    assert shown is not None
    assert (shown.chunk, slot.read()) == (2, None)
    seated.clear()
    assert slot.seat(3).read() is None


def test_recall_takes_what_was_not_started(pair: Pair) -> None:
    main, child = pair
    slot, descriptor = ProgressSlot.create()
    os.close(descriptor)
    orphaned = threading.Event()
    inbox = Inbox(child, slot, orphaned.set)
    main.send(chunk(1, 3))
    main.send(chunk(2))
    work = inbox.next()
    assert work is not None
    assert work.start(0, None)
    main.send(Recall())
    frames: list[Frame] = []
    eventually(lambda: frames.extend(main.receive()) or len(frames) == 2)
    assert frames == [Returned(1, [1, 2]), Returned(2, [0])]
    assert work.start(0, None)
    assert not work.start(1, None)
    assert work.start_batch([0, 1, 2], 1.0) == [0]
    inbox.report(work, work.finish())
    later = inbox.next()
    assert later is not None
    assert later.recalled_whole
    main.send(Stop())
    assert inbox.next() is None
    assert inbox.leaving
    main.close()
    assert orphaned.wait(60)


def test_a_worker_whose_descriptors_were_closed_ends_and_says_nothing_of_its_request(
    pair: Pair,
) -> None:
    """As by a handler's `os.closerange`: its new session cannot be told of, and no request is to
    blame for that."""
    _, child = pair
    slot, descriptor = ProgressSlot.create()
    os.close(descriptor)
    ended: list[str] = []
    inbox = Inbox(child, slot, lambda: ended.append(threading.current_thread().name))
    child.close()
    inbox.connected((1, "then"))
    assert "MainThread" in ended


def test_a_worker_that_can_no_longer_hear_ends(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deaf, it would keep what it has, and nobody would know."""
    ended = Mock()
    monkeypatch.setattr("processing.worker.inbox.exit_at_once", ended)
    _, child = pair
    monkeypatch.setattr(child, "receive", Mock(side_effect=MemoryError))
    Inbox(child, ProgressSlot.create()[0], lambda: None)
    eventually(lambda: ended.call_args)
    ended.assert_called_once_with(1)
