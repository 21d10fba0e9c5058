"""What ``oncepool send`` is to send: one JSON document, or one a line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from consumer.commands.output import EXIT_FAILED, EXIT_USAGE, fail
from feedback.contract.payloads import parse_json

EMPTY = b"{}"


@dataclass(frozen=True, slots=True)
class RequestToSend:
    """One request to send."""

    payload: bytes
    options: dict[str, Any]
    line: str = ""
    """Which line of a file it stands in, in words."""


def read_requests(
    payload: str | None, file: str | None, id: str | None, common: dict[str, Any]
) -> list[RequestToSend]:
    """What is to be sent; those that stand in lines say so."""
    if file is not None:
        return list(_lines(_read(file), file, id, common))
    data = EMPTY if payload is None else payload.encode()
    if payload == "-":
        data = _read("-")
        if _stands_in_lines(data):
            return list(_lines(data, "standard input", id, common))
    own = {} if id is None else {"request_id": id}
    place, code = ("standard input", EXIT_FAILED) if payload == "-" else ("PAYLOAD", EXIT_USAGE)
    return [RequestToSend(_checked(data, place, code), common | own)]


def _stands_in_lines(data: bytes) -> bool:
    """Whether this is no JSON document, and its first line is one, and not the only line."""
    lines = [line for line in data.splitlines() if line.strip()]
    return len(lines) > 1 and not _is_json(data) and _is_json(lines[0])


def _is_json(data: bytes) -> bool:
    try:
        parse_json(data)
    except ValueError:
        return False
    return True


def _checked(data: bytes, place: str, code: int) -> bytes:
    try:
        parse_json(data)
    except ValueError as error:
        fail(f"{place} is not JSON: {error}", code)
    return data


def _read(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        fail(f"{file} can't be read: {error.strerror}")


def _lines(
    text: bytes, file: str, id: str | None, common: dict[str, Any]
) -> Iterator[RequestToSend]:
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            own = {} if id is None else {"request_id": f"{id}-{number}"}
            place = f"line {number} of {file}"
            yield RequestToSend(_checked(line, place, EXIT_FAILED), common | own, place)
