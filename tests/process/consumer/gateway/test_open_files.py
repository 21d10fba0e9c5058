"""A gateway that may open fewer files than its connections take, and more clients than that."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from consumer.gateway.open_files import EXTRA, OTHERS
from tests.support.gateway_process import NO_SERVICES, GatewayProcess
from tests.support.waiting import eventually

FILES = 512
MORE = 800
"""Connections."""


@contextmanager
def idle(gateway: GatewayProcess, number: int) -> Iterator[list[socket.socket]]:
    """So many clients, which connect and say nothing."""
    with ExitStack() as opened:
        yield [
            opened.enter_context(socket.create_connection(gateway.address, timeout=20))
            for _ in range(number)
        ]


def head(gateway: GatewayProcess, path: str) -> str:
    """What a client of its own is answered first."""
    with socket.create_connection(gateway.address, timeout=20) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return client.makefile("rb").readline().decode().split(" ", 1)[1].strip()


def test_it_raises_the_soft_limit_for_its_connections(tmp_path: Path) -> None:
    files = (FILES, 10 * FILES)
    with GatewayProcess(NO_SERVICES, tmp_path / "log", files=files) as gateway:
        with idle(gateway, MORE):
            assert head(gateway, "/livez") == "200 OK"
            assert head(gateway, "/openapi.json") == "200 OK"
        assert "open files" not in gateway.log


@pytest.mark.parametrize("files", [FILES, EXTRA + OTHERS + 1])
def test_where_that_is_not_enough_it_has_fewer_connections(tmp_path: Path, files: int) -> None:
    """The others are told so, it still says how it is, and the log says what to do."""
    with GatewayProcess(NO_SERVICES, tmp_path / "log", files=(files, files)) as gateway:
        assert f"connections={files - EXTRA - OTHERS} " in gateway.log
        assert "raise the hard limit" in gateway.log
        said = len(gateway.log)
        with idle(gateway, MORE) as clients:
            assert head(gateway, "/livez") == "200 OK"
            assert head(gateway, "/openapi.json") == "503 Service Unavailable"
            # Those that came late make room for still later ones, and hear why.
            assert clients[files - EXTRA - OTHERS].recv(12) == b"HTTP/1.1 503"
            clients[-1].sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert clients[-1].recv(12) == b"HTTP/1.1 200"
        assert len(gateway.log) - said < 1000, gateway.log
        eventually(lambda: head(gateway, "/openapi.json") == "200 OK")
