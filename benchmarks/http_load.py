"""Calls by HTTP/1.1 on kept connections, as many at once as there are connections: no more wait.

A client of its own, as those of libraries take more CPU for a call than the server that is asked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

LONGEST = 120.0
"""Seconds that all calls of one load may take."""


def load(port: int, calls: Sequence[bytes], connections: int, good: int) -> list[float]:
    """Makes all calls; seconds that each took.

    `calls` are whole requests; raises RuntimeError for an answer with another status than `good`,
    TimeoutError after LONGEST.
    """
    return asyncio.run(_load(port, calls, connections, good))


def call(method: str, path: str, headers: str = "", body: bytes = b"") -> bytes:
    """One request; `headers`: whole lines."""
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}{length}\r\n".encode() + body


async def _load(port: int, calls: Sequence[bytes], connections: int, good: int) -> list[float]:
    left = iter(calls)
    seconds: list[float] = []

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for request in left:
            begun = time.perf_counter()
            writer.write(request)
            status = await _answer(reader)
            seconds.append(time.perf_counter() - begun)
            if status != good:
                raise RuntimeError(f"answered with {status}, not {good}")
        writer.close()

    async with asyncio.timeout(LONGEST), asyncio.TaskGroup() as tasks:
        for _ in range(connections):
            tasks.create_task(one())
    return seconds


async def _answer(reader: asyncio.StreamReader) -> int:
    """The status of an answer, whose body is read as well."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = head.partition(b"content-length:")[2].split(b"\r\n", 1)[0]
    await reader.readexactly(int(length))
    return int(head.split(b" ", 2)[1])


def until_it_answers(port: int, path: str, running: Callable[[], bool]) -> None:
    """Waits until a server answers there, whatever it says. Raises RuntimeError."""
    end = time.monotonic() + LONGEST
    while running() and time.monotonic() < end:
        try:
            asyncio.run(_once(port, call("GET", path)))
            return
        except (OSError, EOFError):
            time.sleep(0.05)
    raise RuntimeError("the server does not answer")


async def _once(port: int, request: bytes) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    status = await _answer(reader)
    writer.close()
    return status
