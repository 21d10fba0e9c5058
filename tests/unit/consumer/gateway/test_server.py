"""The gateway's server: how it begins, and clients that are slow or come again and again."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from consumer.config.settings import Settings
from consumer.errors import ConfigError, ConsumerError
from consumer.gateway import serve
from consumer.gateway.guard import is_loopback
from consumer.gateway.readiness import Prober, Readiness
from consumer.gateway.server import BoundedHttp, GatewayServer, configured
from tests.support.gateway import GatewayBench, key

GIVEN = {"redis_url": "redis://127.0.0.1:1", "kafka_bootstrap_servers": "127.0.0.1:1",
         "kafka_topics": "requests"}  # fmt: skip


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConsumerError, match=f"port {port}.*set gateway_host and gateway_port"):
            serve(Settings.model_validate({**GIVEN, "gateway_port": port}))


@pytest.mark.parametrize("missing", GIVEN)
def test_a_setting_that_is_missing_is_named(missing: str) -> None:
    given = {name: value for name, value in GIVEN.items() if name != missing}
    with pytest.raises(ConfigError, match=missing):
        serve(Settings.model_validate({**given, "gateway_port": 0}))


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "gateway.example", "::"])
def test_without_keys_it_does_not_listen_for_others(host: str) -> None:
    given = {**GIVEN, "gateway_host": host}
    with pytest.raises(ConfigError, match="gateway_keys is empty"):
        serve(Settings.model_validate(given))
    keys = {"gateway_keys": {"shop": key("send")}, "gateway_outbox": True}
    with pytest.raises(ConfigError, match="outbox_database_url"):
        serve(Settings.model_validate(given | keys))


@pytest.mark.parametrize("root", ["/a b", "/a%20b", "/ä", "/a?b", "a", "/a/", '/a"b'])
def test_a_root_path_that_no_server_serves_is_refused(root: str) -> None:
    with pytest.raises(ValueError, match="gateway_root_path"):
        Settings.model_validate({"gateway_root_path": root})
    assert Settings.model_validate({"gateway_root_path": "/A-1/b._~"})


def test_what_is_near_is_known() -> None:
    assert all(map(is_loopback, ("127.0.0.2", "localhost", "::1", "LOCALHOST")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "localhost.example", "")))


def test_without_its_extra_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['uvicorn'] = None; from consumer.gateway import serve"
    ended = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True
    )
    assert "install oncepool[gateway]" in ended.stderr


POST = b"POST /requests/t HTTP/1.1\r\nHost: a\r\n"


@pytest.mark.parametrize(
    "sent, status, code",
    [
        (b"GET /livez HTTP/1.1\r\n\r\n", 400, "invalid_request"),
        (POST + b"Content-Length: b\r\n\r\n", 400, "invalid_request"),
        (POST + b"Idempotency-Key: \0\r\n\r\n", 400, "invalid_request"),
        (POST + b"Transfer-Encoding: gzip\r\n\r\n", 501, "invalid_request"),
        ("GET /é HTTP/1.1\r\nHost: a\r\n\r\n".encode(), 400, "invalid_request"),
        (b"GET /livez HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 82_500, 431, "too_large"),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400, "invalid_request"),
    ],
    ids=range(7),
)
def test_what_is_no_http_gets_a_problem_document(sent: bytes, status: int, code: str) -> None:
    async def wrong(host: str, port: int) -> None:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(sent)
        head, _, body = (await _rest(reader)).partition(b"\r\n\r\n")
        writer.close()
        assert head.startswith(b"HTTP/1.1 %d " % status)
        assert b"content-type: application/problem+json" in head.lower()
        assert b"x-content-type-options: nosniff" in head.lower()
        said = json.loads(body)
        assert (said["status"], said["type"]) == (status, f"urn:oncepool:problem:{code}")

    _serving(wrong)


def test_clients_that_are_slow_are_let_go() -> None:
    async def slow(host: str, port: int) -> None:
        # No byte, half a request line, headers without an end, a second request that stops.
        live = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
        starts = (b"", b"GET /li", live + b"X: ", live + b"\r\n")
        answers = await asyncio.gather(*(_all(host, port, start) for start in starts))
        assert answers[:3] == [b""] * 3
        assert answers[3].startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"server:" not in answers[3].lower()

    _serving(slow, gateway_client_timeout=0.3)


@pytest.mark.parametrize("more", [b"x", b"x" * 1000, b"x" * 1000 + b"GET /li"])
def test_who_goes_on_after_an_answer_and_stops_is_let_go(more: bytes) -> None:
    async def lingering(host: str, port: int) -> None:
        reader, writer = await _answered_early(host, port)
        writer.write(more)
        assert await _rest(reader) == b""
        writer.close()

    _serving(lingering, gateway_client_timeout=0.3)


def test_what_is_left_of_a_body_has_one_deadline_and_not_one_a_byte() -> None:
    async def dripping(host: str, port: int) -> None:
        reader, writer = await _answered_early(host, port)
        closed = asyncio.create_task(_rest(reader))
        while not closed.done():
            writer.write(b"x")
            await asyncio.sleep(0.02)
        assert await closed == b""
        writer.close()

    _serving(dripping, gateway_client_timeout=0.3)


def test_who_is_answered_early_and_sends_all_of_it_goes_on() -> None:
    async def all_of_it(host: str, port: int) -> None:
        reader, writer = await _answered_early(host, port)
        writer.write(b"x" * 1000 + b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await reader.readuntil(b"ok\n")).startswith(b"HTTP/1.1 200 OK\r\n")
        writer.close()

    _serving(all_of_it)


def test_neither_work_nor_rest_between_two_calls_has_the_client_s_deadline() -> None:
    async def patient(host: str, port: int) -> None:
        live = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
        resting, asks = await asyncio.open_connection(host, port)
        asks.write(live)
        await resting.readuntil(b"ok\n")
        waiting, sends = await asyncio.open_connection(host, port)
        sends.write(b"POST /requests/a.b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n"
                    b"Prefer: wait=1\r\n\r\n1")  # fmt: skip
        assert (await waiting.readline()).startswith(b"HTTP/1.1 202 ")
        asks.write(live)
        await resting.readuntil(b"ok\n")
        for writer in (asks, sends):
            writer.close()

    _serving(patient, gateway_client_timeout=0.3)


@pytest.mark.parametrize("close", [b"", b"Connection: close\r\n"])
def test_who_does_not_take_the_end_of_an_answer_is_let_go(
    monkeypatch: pytest.MonkeyPatch, close: bytes
) -> None:
    made, served = BoundedHttp.connection_made, []

    def narrow(self: BoundedHttp, transport: Any) -> None:
        made(self, transport)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        served.append(self)

    monkeypatch.setattr(BoundedHttp, "connection_made", narrow)

    async def unread(host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            client.setblocking(False)
            await loop.sock_connect(client, (host, port))
            ask = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n%b\r\n" % close
            await loop.sock_sendall(client, ask)
            while not (served and served[0].transport.get_write_buffer_size()):
                await asyncio.sleep(0.01)
            assert served[0].transport.get_write_buffer_size() < 64 * 1024
            async with asyncio.timeout(10):
                while served[0].connections:
                    await asyncio.sleep(0.01)

    _serving(unread, gateway_client_timeout=0.3)


def test_a_rest_that_is_no_http_ends_the_connection_and_nothing_else() -> None:
    async def garbage(host: str, port: int) -> None:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        chunked = b"Transfer-Encoding: chunked\r\n"
        reader, writer = await _answered_early(host, port, chunked)
        writer.write(b"no length\r\n")
        assert await _rest(reader) == b""
        assert told == []

    _serving(garbage)


def test_an_answer_waits_for_no_acknowledgement(monkeypatch: pytest.MonkeyPatch) -> None:
    made, options = BoundedHttp.connection_made, []

    def noted(self: BoundedHttp, transport: Any) -> None:
        made(self, transport)
        taken = transport.get_extra_info("socket")
        options.append(taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    monkeypatch.setattr(BoundedHttp, "connection_made", noted)

    async def ask(host: str, port: int) -> None:
        await _all(host, port, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")

    _serving(ask, gateway_client_timeout=0.3)
    assert options == [1]


ASK = b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_who_connects_when_too_many_are_is_told_when_to_come_again_and_counted() -> None:
    async def crowd(host: str, port: int) -> None:
        kept, writer = await asyncio.open_connection(host, port)
        writer.write(ASK % b"/livez")
        await kept.readuntil(b"ok\n")
        head, body = await _last(host, port, ASK % b"/requests/k")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 5" in head
        assert json.loads(body)["type"] == "urn:oncepool:problem:unavailable"
        writer.write(ASK % b"/livez")
        await kept.readuntil(b"ok\n")
        writer.close()

    bench = _serving(crowd, gateway_max_connections=1)
    assert bench.answers == [("/livez", "GET", 200), ("", "GET", 503), ("/livez", "GET", 200)]


def test_who_came_in_time_is_served_while_others_are_too_many() -> None:
    async def crowd(host: str, port: int) -> None:
        kept, writer = await asyncio.open_connection(host, port)
        late = [await asyncio.open_connection(host, port) for _ in range(3)]
        late[0][1].write(ASK % b"/requests/k")
        assert (await late[0][0].readline()).startswith(b"HTTP/1.1 503 ")
        writer.write(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert (await kept.read()).startswith(b"HTTP/1.1 200 ")  # until the gateway has closed it
        writer.close()
        late[1][1].write(ASK % b"/openapi.json")
        assert (await late[1][0].readline()).startswith(b"HTTP/1.1 200 ")
        for _, other in late:
            other.close()

    _serving(crowd, gateway_max_connections=1)


@pytest.mark.parametrize("root", ["", "/once"])
def test_a_full_gateway_still_tells_how_it_is(root: str) -> None:
    async def full(host: str, port: int) -> None:
        taken = [await asyncio.open_connection(host, port) for _ in range(40)]
        for path, said in ((b"/livez", b"ok\n"), (b"/readyz", b"ok\n"), (b"/metrics", b"# HELP")):
            head, body = await _last(host, port, ASK % path)
            assert head.startswith(b"HTTP/1.1 200 "), path
            assert body.startswith(said)
            assert b"connection: close" in head
        for _, writer in taken:
            writer.close()

    _serving(full, gateway_max_connections=1, gateway_root_path=root)


def test_looks_at_a_full_gateway_have_a_bound_of_their_own() -> None:
    bench, going_on = GatewayBench(gateway_max_connections=1), asyncio.Event()

    async def slow() -> None:
        await going_on.wait()

    bench.parts.readiness = Readiness([Prober("slow", needed=True, ask=slow)])

    async def crowd(host: str, port: int) -> None:
        asked = [asyncio.create_task(_last(host, port, ASK % b"/readyz")) for _ in range(25)]
        refused, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        assert (await refused.pop())[0].startswith(b"HTTP/1.1 503 ")
        going_on.set()
        heads = [head for head, _ in await asyncio.gather(*asked)]
        assert any(head.startswith(b"HTTP/1.1 200 ") for head in heads)

    _serving(crowd, bench)


def test_a_service_manager_hears_of_start_life_and_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "1000000")

    async def listen(host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        assert await loop.sock_recv(manager, 4096) == b"READY=1\nSTATUS=serving"
        assert await loop.sock_recv(manager, 4096) == b"WATCHDOG=1"

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        _serving(listen)
        heard = b""
        while not heard.startswith(b"STOPPING=1"):
            heard = manager.recv(4096)


def _serving(
    script: Callable[[str, int], Awaitable[None]],
    bench: GatewayBench | None = None,
    **settings: Any,
) -> GatewayBench:
    bench = bench or GatewayBench(**settings)

    async def play() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = GatewayServer(configured(bench.settings, bench.app), bench.parts)
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            host, port = listener.getsockname()
            await script(host, port)
            server.handle_exit(15, None)
            await serving

    async def bounded() -> None:
        async with asyncio.timeout(50):
            await play()

    asyncio.run(bounded())
    return bench


async def _last(host: str, port: int, ask: bytes) -> tuple[bytes, bytes]:
    """The head, in small letters but for the first line, and the body of a connection's answer."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(ask)
    async with asyncio.timeout(20):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    first, _, rest = head.partition(b"\r\n")
    return first + b"\r\n" + rest.lower(), body


async def _answered_early(
    host: str, port: int, header: bytes = b"Content-Length: 1000\r\n"
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Of a request whose answer came before its body."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"POST /none HTTP/1.1\r\nHost: localhost\r\n" + header + b"\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 404 ")
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    await reader.readexactly(int(length))
    return reader, writer


async def _rest(reader: asyncio.StreamReader) -> bytes:
    """What comes until the server closes the connection, well before uvicorn's own timer does."""
    async with asyncio.timeout(10):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


async def _all(host: str, port: int, start: bytes) -> bytes:
    """What comes until the server closes the connection."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(start)
    try:
        answer = await reader.readuntil(b"ok\n") if start.endswith(b"\r\n\r\n") else b""
        writer.write(b"GET /" if answer else b"")
        return answer + await reader.read()
    except ConnectionResetError:
        return bytes(getattr(reader, "_buffer", b""))
    finally:
        writer.close()
