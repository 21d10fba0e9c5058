"""What a service manager hears, on a socket such as systemd gives."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from processing.ipc.service_manager import ServiceManager


@pytest.fixture(params=["path", "abstract"])
def listener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[socket.socket]:
    name = str(tmp_path / "s") if request.param == "path" else f"\0oncepool-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.bind(name)
        one.setblocking(False)
        yield one


def environ(listener: socket.socket, **more: str) -> dict[str, str]:
    name = listener.getsockname()
    shown = name if isinstance(name, str) else "@" + name[1:].decode()
    return {"NOTIFY_SOCKET": shown} | more


def heard(listener: socket.socket) -> list[str]:
    found: list[str] = []
    try:
        while True:
            found.append(listener.recv(4096).decode())
    except BlockingIOError:
        return found


def test_a_life_is_told_from_start_to_end(listener: socket.socket) -> None:
    now = 100.0
    given = environ(listener, WATCHDOG_USEC="10000000", WATCHDOG_PID=str(os.getpid()))
    manager = ServiceManager(given, lambda: now)
    manager.ready("waiting for the database")
    manager.ready("running")
    assert heard(listener) == ["READY=1\nSTATUS=waiting for the database", "STATUS=running"]
    for _ in range(3):
        manager.alive()
    assert heard(listener) == ["WATCHDOG=1"]
    now += 4.9
    manager.alive()
    assert heard(listener) == []
    now += 0.1
    manager.alive()
    manager.stopping("draining")
    assert heard(listener) == ["WATCHDOG=1", "STOPPING=1\nSTATUS=draining"]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "x"},
        {"WATCHDOG_USEC": "9", "WATCHDOG_PID": "1"},
    ],
)
def test_signs_of_life_are_for_who_asked_for_them(
    listener: socket.socket, more: dict[str, str]
) -> None:
    manager = ServiceManager(environ(listener, **more))
    manager.alive()
    assert heard(listener) == []


@pytest.mark.parametrize("path", ["", "vsock:2:1234", "/nowhere/at/all", "@nobody-listens-here"])
def test_where_nobody_listens_nothing_happens(path: str) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "1000000"})
    manager.ready("running")
    manager.alive()
    manager.stopping("draining")


def test_a_manager_that_does_not_read_is_not_waited_for(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(str(tmp_path / "s"))
        manager = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "s")})
        for _ in range(5000):
            manager.ready("running")
