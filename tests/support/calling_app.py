"""An app of `async def` handlers that wait, fail and do harm where their payloads say so."""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from processing import App, Done, NotDone, Reject, Request

app = App()

ENTRIES = os.environ.get("CALLING_ENTRIES", os.devnull)
"""A file that gets a line for each handler that is entered."""
_entries = os.open(ENTRIES, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@app.on_worker_start
async def resources() -> AsyncIterator[dict[str, Any]]:
    """What belongs to the loop, and goes with it."""
    yield {"opened_in": asyncio.get_running_loop()}
    os.write(_entries, b"closed\n")


def block(seconds: float) -> None:
    """Nothing else runs in the event loop meanwhile."""
    os.write(_entries, b"blocked\n")
    time.sleep(seconds)


async def act(do: str) -> str:  # noqa: C901, PLR0912 - a list of what may be asked for
    """Does what a payload asks for; "await FILE" waits until a file is there."""
    match do.split():
        case ["await", path]:
            while not Path(path).exists():
                await asyncio.sleep(0.01)
        case ["sleep", seconds]:
            await asyncio.sleep(float(seconds))
        case ["block", seconds]:
            time.sleep(float(seconds))
        case ["block_later", seconds]:  # as a library does, when this call has ended
            asyncio.get_running_loop().call_later(0.5, block, float(seconds))
        case ["segfault"]:
            await asyncio.sleep(0)
            ctypes.string_at(0)
        case ["raise"]:
            raise RuntimeError("boom")
        case ["reject"]:
            raise Reject("no_funds")
        case ["tidy"]:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                return "tidied"
        case ["stubborn"]:
            while True:
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    continue
    return do


async def ask(port: str, line: str) -> str:
    """What a RecordingServer answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
    try:
        writer.write(f"{line}\n".encode())
        return (await reader.readline()).decode().strip()
    finally:
        writer.close()


async def found(request: Request[dict[str, Any]]) -> Done | NotDone:
    """Whether a call happened: where its payload, or the server that it was made to, says so."""
    match request.payload["do"].split():
        case ["tell", port, _]:
            return Done("found") if await ask(port, f"find {request.id}") == "yes" else NotDone()
    return Done("found") if request.payload["do"] == "segfault" else NotDone()


async def _call(payload: dict[str, Any], request: Request[Any], opened_in: Any) -> Any:
    assert opened_in is asyncio.get_running_loop()
    os.write(_entries, f"{request.id}\n".encode())
    match payload["do"].split():
        case ["tell", port, what]:
            return await ask(port, f"{what} {request.id}")
    return await act(payload["do"])


@app.handler("call", effect="external", concurrency=30, timeout=60)
async def call(payload: dict[str, Any], request: Request[Any], opened_in: Any) -> Any:
    """Calls another service."""
    return await _call(payload, request, opened_in)


@app.handler("checked", effect="external", concurrency=30, timeout=60, check=found)
async def checked(payload: dict[str, Any], request: Request[Any], opened_in: Any) -> Any:
    """The same, and somebody can tell whether it happened."""
    return await _call(payload, request, opened_in)


@app.handler("look", effect="none", concurrency=30, timeout=60, retries=1)
async def look(payload: dict[str, Any], request: Request[Any], opened_in: Any) -> Any:
    """Asks another service, and changes nothing."""
    return await _call(payload, request, opened_in)
