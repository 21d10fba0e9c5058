"""A card service for the demo and for tests: it charges once for each key, and remembers all.

    python -m examples.shop.card_service --port 8090 --ledger charges.jsonl

POST /charges with an Idempotency-Key: 201 and the charge; 200 for a repeat; 402 where the card is
`declined`; 422 for a key that came with another charge. GET /charges/KEY: the charge or 404.
The ledger has one JSON line for each call, `event` says what was done: charge, repeat, declined,
conflict. Two lines `charge` of one order would be money taken twice.
"""

from __future__ import annotations

import argparse
import json
import random
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

_DECLINED = "declined"  # the card that is always refused
_LONGEST = 64 * 1024


class ChargeLedger:
    """All calls, in a file that outlives the process. Safe for threads."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._charges: dict[str, dict[str, Any]] = {}  # by key
        for entry in read_ledger(path):
            if entry["event"] == "charge":
                self._charges[entry["key"]] = entry
        self._file = path.open("a", encoding="utf-8")

    def charge(self, key: str, body: dict[str, Any]) -> tuple[HTTPStatus, dict[str, Any]]:
        """Charge, or repeat the first answer."""
        with self._lock:
            known = self._charges.get(key)
            if known is not None:
                if known["body"] != body:
                    self._write("conflict", key, body)
                    return HTTPStatus.UNPROCESSABLE_ENTITY, {"reason": "key of another charge"}
                self._write("repeat", key, body)
                return HTTPStatus.OK, _answer(known)
            if body["card"] == _DECLINED:
                self._write("declined", key, body)
                return HTTPStatus.PAYMENT_REQUIRED, {"reason": "the card was declined"}
            number = f"ch-{len(self._charges) + 1}"
            self._charges[key] = self._write("charge", key, body, charge_id=number)
            return HTTPStatus.CREATED, _answer(self._charges[key])

    def find(self, key: str) -> dict[str, Any] | None:
        """The answer to the charge under this key."""
        with self._lock:
            known = self._charges.get(key)
        return None if known is None else _answer(known)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()

    def _write(self, event: str, key: str, body: dict[str, Any], **more: Any) -> dict[str, Any]:
        entry = {"event": event, "key": key, "body": body, "at": time.time(), **more}
        self._file.write(json.dumps(entry) + "\n")
        self._file.flush()  # before the answer: what was answered is in the file
        return entry


def read_ledger(path: Path) -> list[dict[str, Any]]:
    """All entries of a ledger's file, oldest first."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


class CardService:
    """The service in this process, for `with`.

    `lose_replies` is the share of charges (0 to 1) that are made and not answered, as when a line
    breaks; `delay` is seconds before each answer.
    """

    def __init__(
        self,
        ledger: Path,
        port: int = 0,
        *,
        host: str = "127.0.0.1",
        lose_replies: float = 0.0,
        delay: float = 0.0,
    ) -> None:
        self.ledger = ChargeLedger(ledger)
        self.lose_replies = lose_replies
        self.delay = delay
        self._server = _CardServer((host, port), _Calls)
        self._server.service = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        """Its address on this machine, for SHOP_CARDS_URL."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def serve(self) -> None:
        """Answer calls until the process ends."""
        self._server.serve_forever()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self.ledger.close()


class _CardServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    service: CardService


class _Calls(BaseHTTPRequestHandler):
    server: _CardServer

    def do_POST(self) -> None:
        service = self.server.service
        key = _unquoted(self.headers.get("Idempotency-Key", ""))
        body = self._body()
        if self.path != "/charges" or not key or body is None:
            self._answer(HTTPStatus.BAD_REQUEST, {"reason": "POST a charge to /charges with a key"})
            return
        status, answer = service.ledger.charge(key, body)
        time.sleep(service.delay)
        if status is HTTPStatus.CREATED and random.random() < service.lose_replies:
            self.close_connection = True
            return
        self._answer(status, answer)

    def do_GET(self) -> None:
        key = unquote(self.path.removeprefix("/charges/"))
        answer = self.server.service.ledger.find(key)
        if answer is None:
            self._answer(HTTPStatus.NOT_FOUND, {"reason": "no charge under this key"})
        else:
            self._answer(HTTPStatus.OK, answer)

    def log_message(self, format: str, *args: Any) -> None:
        """The ledger is the log."""

    def _body(self) -> dict[str, Any] | None:
        length = min(int(self.headers.get("Content-Length") or 0), _LONGEST)
        try:
            body = json.loads(self.rfile.read(length))
        except ValueError:
            return None
        return body if isinstance(body, dict) and {"card", "amount_cents"} <= set(body) else None

    def _answer(self, status: HTTPStatus, answer: dict[str, Any]) -> None:
        data = json.dumps(answer).encode()
        with suppress(ConnectionError):  # a caller that was killed; the ledger has its call
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)


def _unquoted(key: str) -> str:
    """`"a"` and `a` are the same key."""
    try:
        return str(json.loads(key)) if key.startswith('"') else key
    except ValueError:
        return ""


def _answer(entry: dict[str, Any]) -> dict[str, Any]:
    return {"charge_id": entry["charge_id"], "amount_cents": entry["body"]["amount_cents"]}


def main() -> None:
    """Serve until the process ends."""
    parser = argparse.ArgumentParser(prog="card_service", description="A card service for the demo")
    parser.add_argument("--port", type=int, default=8090)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--ledger", type=Path, default=Path("charges.jsonl"))
    parser.add_argument("--lose-replies", type=float, default=0.0, help="share of them, 0 to 1")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each answer")
    options = parser.parse_args()
    service = CardService(
        options.ledger,
        options.port,
        host=options.host,
        lose_replies=options.lose_replies,
        delay=options.delay,
    )
    print(f"card service at {service.url}, ledger {options.ledger}", flush=True)
    service.serve()


if __name__ == "__main__":
    main()
