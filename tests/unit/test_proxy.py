"""The tests' own TCP proxies: what they are said to do to what passes."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from tests.support.proxy import (
    KafkaFrames,
    KafkaProxy,
    LoneBrokerProxy,
    Proxy,
    commit_after,
    is_offset_commit,
    is_produce,
)
from tests.support.waiting import eventually


@pytest.fixture
def echo() -> Iterator[socket.socket]:
    """Answers each byte with itself."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    end, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(end,), daemon=True).start()

        def answer(end: socket.socket) -> None:
            with end:
                while data := end.recv(100):
                    end.sendall(data)

        threading.Thread(target=serve, daemon=True).start()
        yield listener
        listener.shutdown(socket.SHUT_RDWR)


def kafka_request(api: int, correlation: int) -> bytes:
    body = struct.pack(">hhi", api, 8, correlation) + b"rest"
    return struct.pack(">i", len(body)) + body


def test_frames_are_whole_however_they_arrive() -> None:
    data = kafka_request(8, 1) + kafka_request(3, 2)
    frames = KafkaFrames()
    found = [frame for at in range(len(data)) for frame in frames.feed(data[at : at + 1])]
    assert found == [kafka_request(8, 1), kafka_request(3, 2)]
    assert [is_offset_commit(frame) for frame in found] == [True, False]
    assert [is_produce(frame) for frame in (kafka_request(0, 1), *found, b"")] == [
        True, False, False, False,
    ]  # fmt: skip


def test_a_proxy_loses_one_answer_is_cut_and_mended(echo: socket.socket) -> None:
    with Proxy(*echo.getsockname()) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port), 5) as client:
            client.sendall(b"hello")
            assert client.recv(100) == b"hello"
            wish = proxy.lose_answer(b"COMMIT")
            client.sendall(b"COMMIT")
            assert client.recv(100) == b""
            assert wish.fulfilled.is_set()
            assert proxy.lost == 1
        eventually(lambda: proxy.connections == 0)
        with socket.create_connection(("127.0.0.1", proxy.port), 5) as client:
            eventually(lambda: proxy.connections == 1)
            assert proxy.cut() == 1
            assert client.recv(100) == b""
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", proxy.port), 5)
        proxy.mend()
        with socket.create_connection(("127.0.0.1", proxy.port), 5) as client:
            client.sendall(b"again")
            assert client.recv(100) == b"again"


def test_of_a_broker_the_answer_with_the_request_s_number_is_lost(echo: socket.socket) -> None:
    """An answer begins with the number, so the echo of a frame that begins with it is one."""
    with (
        KafkaProxy(*echo.getsockname()) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), 5) as client,
    ):
        wish = proxy.wish(is_offset_commit)
        client.sendall(kafka_request(8, 7))
        assert client.recv(100) == kafka_request(8, 7), "its number stands elsewhere"
        assert not wish.fulfilled.is_set()
        client.sendall(struct.pack(">ii", 4, 7))
        assert client.recv(100) == b""
        assert wish.fulfilled.is_set()


def test_a_broker_s_own_address_is_replaced_in_what_it_says(echo: socket.socket) -> None:
    host, port = echo.getsockname()
    with (
        LoneBrokerProxy.of(f"{host}:{port}") as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), 5) as client,
    ):
        client.sendall(b"at 127.0.0.1" + struct.pack(">i", port))
        assert client.recv(100) == b"at 127.0.0.1" + struct.pack(">i", proxy.port)


def test_a_commit_fits_once_its_statement_was_said() -> None:
    fits = commit_after(b"INSERT")
    said = [b"COMMIT", b"UPDATE", b"COMMIT", b"INSERT", b"UPDATE", b"COMMIT"]
    assert [fits(request) for request in said] == [False] * 5 + [True]
    assert commit_after(b"INSERT")(b"INSERT; COMMIT")
