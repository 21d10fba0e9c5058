"""Proxies before brokers: whole frames pass, and what is changed is the frame that was meant."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any, Self

import pytest

from tests.support.brokerless_proxy import BrokerlessProxy
from tests.support.heartbeat_proxy import HeartbeatProxy
from tests.support.kafka_frames import KafkaFrames, is_offset_commit, is_produce
from tests.support.kafka_proxy import KafkaProxy, LoneBrokerProxy
from tests.support.produce_proxy import OUT_OF_ORDER, ProduceProxy
from tests.support.proxy import Link
from tests.support.waiting import eventually

FETCH = 1
METADATA = 3
PRODUCE = 0


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as one:
        one.settimeout(5)
        yield one


class Wire:
    """One connection through a proxy: the test is the client, and the broker."""

    def __init__(self, proxy: KafkaProxy, listener: socket.socket) -> None:
        self._proxy = proxy
        self.client = socket.create_connection(("127.0.0.1", proxy.port), 5)
        self.broker, _ = listener.accept()
        self.broker.settimeout(5)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.broker.close()

    def up(self, *pieces: bytes) -> bytes:
        """What the broker gets of what the client sends, each piece read by itself."""
        self.send(self.client, *pieces)
        return _frame(self.broker)

    def down(self, *pieces: bytes) -> bytes:
        """What the client gets of what the broker sends, each piece read by itself."""
        self.send(self.broker, *pieces)
        return _frame(self.client)

    def send(self, end: socket.socket, *pieces: bytes) -> None:
        """Sends each once the proxy has read the one before."""
        for piece in pieces:
            passed = self._proxy.passed + len(piece)
            end.sendall(piece)
            eventually(lambda passed=passed: self._proxy.passed == passed)


def _frame(end: socket.socket) -> bytes:
    """The next one; what there is of it where the connection ends."""
    found = b""
    while len(found) < 4 or len(found) < 4 + struct.unpack_from(">i", found)[0]:
        if not (data := end.recv(1_000_000)):
            break
        found += data
    return found


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def request(api: int, number: int) -> bytes:
    return framed(struct.pack(">hhi", api, 9, number) + b"rest")


def answer(number: int, body: bytes = b"answered") -> bytes:
    return framed(struct.pack(">i", number) + body)


def metadata(number: int, brokers: int = 1) -> bytes:
    one = struct.pack(">i", 7) + b"\x0a127.0.0.1" + struct.pack(">i", 9092) + b"\0\0"
    throttled = b"\0" + struct.pack(">i", 0)
    return answer(number, throttled + bytes([brokers + 1]) + one * brokers + b"topics")


def produced(number: int, code: int = 0) -> bytes:
    return answer(number, b"\0\x02\x05name\x02" + struct.pack(">ih", 0, code) + b"rest")


def heartbeat(number: int, epoch: int) -> bytes:
    header = struct.pack(">hhih", 68, 1, number, 2) + b"me\0"
    return framed(header + b"\x06group\x07member" + struct.pack(">i", epoch) + b"rest")


def test_frames_are_whole_however_they_arrive() -> None:
    data = request(8, 1) + request(3, 2)
    frames = KafkaFrames()
    found = [frame for at in range(len(data)) for frame in frames.feed(data[at : at + 1])]
    assert found == [request(8, 1), request(3, 2)]
    assert KafkaFrames().feed(data) == found
    assert [is_offset_commit(frame) for frame in found] == [True, False]
    assert [is_produce(frame) for frame in (request(0, 1), *found, b"")] == [
        True, False, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize("length", [-1, -4, -(2**31)])
def test_a_negative_length_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match=f"its length is {length}"):
        KafkaFrames().feed(request(8, 1) + struct.pack(">i", length) + b"some more")


def test_what_has_no_frames_breaks_its_connection(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda hook: seen.append(hook.exc_type))
    with KafkaProxy(*listener.getsockname()) as proxy, Wire(proxy, listener) as wire:
        wire.client.sendall(struct.pack(">i", -1))
        assert wire.broker.recv(100) == b""
        assert wire.client.recv(100) == b""
        eventually(lambda: seen == [ValueError])


def test_the_answer_with_the_request_s_number_is_lost(listener: socket.socket) -> None:
    with KafkaProxy(*listener.getsockname()) as proxy, Wire(proxy, listener) as wire:
        wish = proxy.wish(is_offset_commit)
        assert wire.up(request(8, 7)) == request(8, 7)
        assert wire.down(answer(6)) == answer(6)
        assert not wish.fulfilled.is_set()
        assert wire.down(answer(7)) == b""
        assert wish.fulfilled.is_set()


def test_a_frame_passes_when_it_is_whole(listener: socket.socket) -> None:
    whole = answer(1)
    with KafkaProxy(*listener.getsockname()) as proxy, Wire(proxy, listener) as wire:
        for source, sink in ((wire.client, wire.broker), (wire.broker, wire.client)):
            wire.send(source, whole + whole[:7])
            assert sink.recv(100) == whole
            wire.send(source, whole[7:])
            assert sink.recv(100) == whole


def test_a_large_frame_passes(listener: socket.socket) -> None:
    large = answer(1, bytes(range(256)) * 20_000)
    with KafkaProxy(*listener.getsockname()) as proxy, Wire(proxy, listener) as wire:
        assert wire.down(large) == large


@pytest.mark.parametrize("at", range(12, 24))
def test_a_broker_s_own_address_is_replaced_wherever_it_is_cut(
    listener: socket.socket, at: int
) -> None:
    host, port = listener.getsockname()
    with LoneBrokerProxy.of(f"{host}:{port}") as proxy, Wire(proxy, listener) as wire:
        theirs, ours = (
            answer(1, b"at 127.0.0.1" + struct.pack(">i", one)) for one in (port, proxy.port)
        )
        assert wire.down(theirs[:at], theirs[at:]) == ours


def test_what_is_answered_is_asked_no_more(listener: socket.socket) -> None:
    """Else pieces of a batch were cut as if frames began with them, one of a negative length."""
    batch = struct.pack(">qiib", 12, 100, 0, 2) + b"\x01\x02\x03\x80" + b"records"
    fetched = answer(3, b"of a topic" + batch)
    with BrokerlessProxy(*listener.getsockname()) as proxy, Wire(proxy, listener) as wire:
        proxy.brokerless = 1
        for number in (1, 2):
            assert wire.up(request(METADATA, number)) == request(METADATA, number)
        assert wire.down(metadata(1)) == metadata(1, brokers=0)
        assert wire.down(metadata(2)) == metadata(2)
        at = len(fetched) - len(batch)
        assert wire.down(fetched[:at], fetched[at:]) == fetched


def test_an_answer_is_left_without_brokers_wherever_it_is_cut(listener: socket.socket) -> None:
    with BrokerlessProxy(*listener.getsockname()) as proxy, Wire(proxy, listener) as wire:
        proxy.brokerless = 1
        asked, known = request(METADATA, 1), metadata(1, brokers=3)
        assert wire.up(asked[:9], asked[9:]) == asked
        assert wire.down(known[:20], known[20:]) == metadata(1, brokers=0)
        assert not proxy.brokerless


def test_an_answer_to_a_producer_is_spoiled_wherever_it_is_cut(listener: socket.socket) -> None:
    with ProduceProxy(*listener.getsockname()) as proxy, Wire(proxy, listener) as wire:
        proxy.spoil = 1
        sent, taken = request(PRODUCE, 1), produced(1)
        assert wire.up(sent[:9], sent[9:]) == sent
        assert wire.down(taken[:12], taken[12:]) == produced(1, OUT_OF_ORDER)
        assert not proxy.spoil


def test_a_heartbeat_is_spoiled_wherever_it_is_cut(listener: socket.socket) -> None:
    with HeartbeatProxy(*listener.getsockname()) as proxy, Wire(proxy, listener) as wire:
        proxy.spoil = 1
        whole = heartbeat(1, epoch=5)
        assert wire.up(whole[:20], whole[20:]) == heartbeat(1, epoch=0)
        assert not proxy.spoil


def test_numbers_are_those_of_a_connection(listener: socket.socket) -> None:
    with (
        BrokerlessProxy(*listener.getsockname()) as proxy,
        Wire(proxy, listener) as one,
        Wire(proxy, listener) as other,
    ):
        assert other.up(request(FETCH, 1)) == request(FETCH, 1)
        proxy.brokerless = 1
        assert one.up(request(METADATA, 1)) == request(METADATA, 1)
        assert other.down(metadata(1)) == metadata(1)
        assert one.down(metadata(1)) == metadata(1, brokers=0)


class Counted:
    """A count that two threads read before either of them changes it, where nothing forbids it."""

    def __init__(self) -> None:
        self._left = 1
        self._both = threading.Barrier(2)

    def __get__(self, proxy: Any, _: object = None) -> int:
        left = self._left
        if not proxy._lock.locked():
            self._both.wait(5)
        return left

    def __set__(self, _: object, left: int) -> None:
        self._left = left


def spoiled_twice(kind: type[Any], count: str, frame: bytes, *, up: bool) -> int:
    """How many of two frames that pass at once are changed, where one is to be."""
    changed: list[bool] = []
    with type("Counting", (kind,), {count: Counted()})("127.0.0.1", 1) as proxy:

        def pass_on() -> None:
            link = Link(socket.socket(), socket.socket())
            link.asked.add(frame[4:8])
            with link.near, link.far:
                changed.append(proxy._as_passed_on(link, frame, up=up) != frame)

        threads = [threading.Thread(target=pass_on) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(changed) == 2
    return sum(changed)


def test_of_two_that_pass_at_once_one_is_changed() -> None:
    assert spoiled_twice(BrokerlessProxy, "brokerless", metadata(1), up=False) == 1
    assert spoiled_twice(ProduceProxy, "spoil", produced(1), up=False) == 1


def test_of_two_heartbeats_that_pass_at_once_one_is_changed() -> None:
    frame = heartbeat(1, epoch=5)
    assert spoiled_twice(HeartbeatProxy, "spoil", frame, up=True) == 1
