"""A producer written from docs/contract.md alone: it imports nothing of Oncepool.

    python bare_producer.py KAFKA REDIS_HOST REDIS_PORT PREFIX TOPIC < REQUESTS

Each line of standard input is {"id", "type", "payload", "headers"?, "structured"?}; each line of
standard output the status that answered it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import socket
import sys
import time
from typing import Any

from confluent_kafka import Producer

SETTLED = {"failed", "in_doubt", "dead", "cancelled", "done", "rejected", "superseded"}
LONGEST = 60.0
RESEND_AFTER = 10.0


class Redis:
    """RESP over a socket: GET, and SUBSCRIBE on a connection of its own."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port))
        self._file = self._socket.makefile("rb")

    def send(self, *words: str) -> None:
        parts = [f"${len(word.encode())}\r\n{word}\r\n" for word in words]
        self._socket.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())

    def reply(self) -> Any:
        line = self._file.readline()[:-2]
        kind, rest = line[:1], line[1:]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        if kind == b"$":
            return None if rest == b"-1" else self._file.read(int(rest) + 2)[:-2]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        return rest

    def get(self, key: str) -> dict[str, Any] | None:
        self.send("GET", key)
        value = self.reply()
        return None if value is None else json.loads(value)

    def hint(self, timeout: float) -> None:
        """Returns when something was said on the channel, or the time is over."""
        self._socket.settimeout(timeout)
        with contextlib.suppress(TimeoutError):
            self._socket.recv(65536)


def canonical(value: Any) -> str:
    """The canonical form of docs/contract.md."""
    if isinstance(value, dict):
        members = sorted(value.items(), key=lambda member: member[0].encode())
        return f"{{{','.join(f'{canonical(n)}:{canonical(v)}' for n, v in members)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(canonical, value))}]"
    if isinstance(value, float):
        text = repr(value)
        digits, _, exponent = text.partition("e-")
        if not exponent:
            return text
        if int(exponent) > 5:
            return f"{digits}e-{int(exponent)}"
        return (
            f"0.0000{digits.replace('.', '')}"
            if digits[0] != "-"
            else (f"-0.0000{digits[1:].replace('.', '')}")
        )
    return json.dumps(value, ensure_ascii=False)


def fingerprint(type_: str, content: bytes, content_type: str = "application/json") -> str:
    if re.fullmatch(r"application/json|.*\+json", content_type):
        content = canonical(json.loads(content)).encode()
    return hashlib.blake2b(type_.encode() + b"\0" + content, digest_size=16).hexdigest()


def message(request: dict[str, Any], channel: str) -> dict[str, Any]:
    """What produce() takes, the same for each copy."""
    headers = {"ce_replyto": channel, **request.get("headers", {})}
    payload = json.dumps(request["payload"])
    if request.get("structured"):
        event = {"specversion": "1.0", "source": "/bare", "id": request["id"],
                 "type": request["type"], "data": request["payload"]}  # fmt: skip
        headers["content-type"] = "application/cloudevents+json"
        payload = json.dumps(event)
    else:
        headers |= {"ce_id": request["id"], "ce_type": request["type"]}
    return {
        "value": payload.encode(),
        "key": request["id"].encode(),
        "headers": [(name, content.encode()) for name, content in headers.items()],
        "timestamp": time.time_ns() // 1_000_000,
    }


def is_old(status: dict[str, Any], old: dict[str, Any] | None) -> bool:
    if old is None:
        return False
    if status["state"] == "failed":
        return bool(old["state"] == "failed" and status["v"] <= old["v"])
    return status["state"] == "in_doubt" and all(status[n] == old[n] for n in ("v", "at"))


def call(
    request: dict[str, Any], producer: Producer, topic: str, prefix: str, place: tuple[str, int]
) -> dict[str, Any]:
    """Sends it, and again where no answer comes; returns the settled status."""
    store, hints = Redis(*place), Redis(*place)
    key = f"{prefix}:status:{request['id']}"
    old = store.get(key)
    channel = f"{prefix}:hints:bare-{request['id']}"
    hints.send("SUBSCRIBE", channel)
    hints.reply()
    mine = fingerprint(request["type"], json.dumps(request["payload"]).encode())
    sending = message(request, channel)
    end, due, pause = time.monotonic() + LONGEST, 0.0, 0.002
    while time.monotonic() < end:
        if time.monotonic() >= due:
            producer.produce(topic, **sending)
            producer.flush(10)
            due = time.monotonic() + RESEND_AFTER
        hints.hint(pause)
        pause = min(pause * 2, 1.0)
        status = store.get(key)
        if status is None:
            continue
        if status.get("fingerprint", mine) != mine:
            return {**status, "conflict": True}
        if status["state"] in SETTLED and not is_old(status, old):
            return status
        if status["state"] in ("waiting", "running"):
            due = time.monotonic() + RESEND_AFTER
    raise TimeoutError(request["id"])


def main() -> None:
    kafka, host, port, prefix, topic = sys.argv[1:]
    producer = Producer(
        {"bootstrap.servers": kafka, "acks": "all", "partitioner": "murmur2_random"}
    )
    for line in sys.stdin:
        answer = call(json.loads(line), producer, topic, prefix, (host, int(port)))
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
