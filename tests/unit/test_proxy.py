"""The tests' own TCP proxies: what they are said to do to what passes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.proxy import Proxy, commit_after
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


def test_its_port_is_nobody_else_s_while_it_is_cut(echo: socket.socket) -> None:
    with Proxy(*echo.getsockname()) as proxy, socket.socket() as other:
        proxy.cut()
        with pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", proxy.port))
        with pytest.raises(ConnectionRefusedError):
            other.connect(("127.0.0.1", proxy.port))


class Odd(Proxy):
    """Has a mistake in it."""

    def _as_passed_on(self, *_: Any, **__: Any) -> bytes:
        raise RuntimeError("a mistake")


def test_an_error_in_a_proxy_breaks_the_connection_and_is_seen(
    echo: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a connection would have both ends wait."""
    seen: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda hook: seen.append(str(hook.exc_value)))
    with (
        Odd(*echo.getsockname()) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), 5) as client,
    ):
        client.sendall(b"hello")
        assert client.recv(100) == b""
        eventually(lambda: seen == ["a mistake"])
        eventually(lambda: proxy.connections == 0)


def test_a_commit_fits_once_its_statement_was_said() -> None:
    fits = commit_after(b"INSERT")
    said = [b"COMMIT", b"UPDATE", b"COMMIT", b"INSERT", b"UPDATE", b"COMMIT"]
    assert [fits(request) for request in said] == [False] * 5 + [True]
    assert commit_after(b"INSERT")(b"INSERT; COMMIT")
