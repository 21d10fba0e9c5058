"""Serves the gateway: bounded in connections, headers and time, until it is asked to stop."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from types import FrameType
from typing import Any, ClassVar, Final

import h11
import uvicorn
from fastapi import FastAPI
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from consumer.config.settings import Settings
from consumer.errors import ConfigError
from consumer.gateway.app import create_app
from consumer.gateway.events import SILENT, GatewayEvents
from consumer.gateway.guard import SECURITY, is_loopback
from consumer.gateway.listening import BACKLOG, listening, tell
from consumer.gateway.open_files import EXTRA, connections_that_fit
from consumer.gateway.parts import GatewayParts
from consumer.gateway.problems import RETRY_AFTER, HttpProblem
from consumer.gateway.rate_limit import RateLimit, WaitSlots
from processing.ipc.end_signals import handled
from processing.ipc.service_manager import ServiceManager
from processing.logs import get_logger

MOST_INCOMPLETE: Final = 80 * 1024
"""Bytes of a request whose headers have not ended."""
HEALTH: Final = frozenset({"/livez", "/readyz", "/metrics"})
HEALTH_RESERVE: Final = 16
"""Calls of these that are answered at once beyond the bound of connections."""
FOR_CALLS: Final = 0.9
"""Part of the grace; then they are given up, and the rest is there to close what is open."""
KEEP_ALIVE: Final = 15
LAST_WORDS: Final = 1.0
"""Seconds for answers that are on their way at a second signal."""
ACCEPTS: Final = 16
"""Of these that are taken in one turn of the loop, which has asyncio log as many errors a second
where there is no file left for them."""
WARNINGS: Final = 0.1
"""A second, of connections that are too many."""

log = get_logger("oncepool.gateway")


def serve(settings: Settings) -> int:
    """Serves until a signal asks it to end; the exit code. Raises ConsumerError: it can't begin."""
    if not settings.gateway_keys and not is_loopback(settings.gateway_host):
        raise ConfigError(
            f"gateway_host ({settings.gateway_host}) is open to others and gateway_keys is empty:"
            " anybody could send and operate; make a key with `oncepool gateway --new-key NAME`, or"
            " use 127.0.0.1"
        )
    app = create_app(settings)
    with listening(settings.gateway_host, settings.gateway_port) as listener:
        tell(settings, listener)
        most = connections_that_fit(settings.gateway_max_connections)
        bounded = settings.model_copy(update={"gateway_max_connections": most})
        server = GatewayServer(configured(bounded, app), app.state.parts)
        asyncio.run(server.serve(sockets=[listener]))
    log.info("stopped")
    return 0 if server.started else 1


def configured(settings: Settings, app: FastAPI) -> uvicorn.Config:
    """How the server serves it."""
    return uvicorn.Config(
        app,
        http=type(
            "Http",
            (BoundedHttp,),
            {
                "seconds": settings.gateway_client_timeout,
                "most": settings.gateway_max_connections,
                "extra": {},
                "reserve": WaitSlots(HEALTH_RESERVE),
                "warnings": RateLimit(WARNINGS),
                "events": app.state.parts.listeners,
                "stopping": app.state.parts.statuses.stopping,
            },
        ),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        root_path=settings.gateway_root_path,
        backlog=ACCEPTS,
        timeout_keep_alive=KEEP_ALIVE,
        # Its type is int, and it goes to asyncio.wait_for as it is.
        timeout_graceful_shutdown=FOR_CALLS * settings.grace,  # type: ignore[arg-type]
        h11_max_incomplete_event_size=MOST_INCOMPLETE,
    )


class GatewayServer(uvicorn.Server):
    """Ends waits as soon as it is asked to stop, and has an exit code of its own."""

    def __init__(self, config: uvicorn.Config, parts: GatewayParts) -> None:
        super().__init__(config)
        self._parts = parts
        self._loop: asyncio.AbstractEventLoop | None = None
        self._manager = ServiceManager()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        if signal.SIGHUP in handled():  # uvicorn takes the others
            signal.signal(signal.SIGHUP, self.handle_exit)
        await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():  # for which asyncio has set how many it takes in one turn
            listener.listen(BACKLOG)

    async def on_tick(self, counter: int) -> bool:
        if counter == 0 and not self.should_exit:
            self._manager.ready("serving")
        self._manager.alive()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._manager.stopping("ending what is on its way")
        await super().shutdown(sockets)
        if not self.force_exit:
            return
        # The base class leaves both to the end of the loop, which cuts them off with a traceback.
        self._give_up()
        if tasks := tuple(self.server_state.tasks):
            await asyncio.wait(tasks, timeout=LAST_WORDS)
        if not self.lifespan.shutdown_event.is_set():
            await self.lifespan.shutdown()

    def _give_up(self) -> None:
        """Ends what is being answered: Guard answers it."""
        for task in tuple(self.server_state.tasks):
            task.cancel()
        if self._loop is not None:
            self._loop.call_later(LAST_WORDS, self._hang_up)

    def _hang_up(self) -> None:
        """On clients that take no answer, which the base class waits for."""
        for connection in tuple(self.server_state.connections):
            connection.transport.abort()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Not the base class's, which ends the process by the signal once all is done.
        del frame
        log.info("stopping", signal=sig)
        if not self.should_exit:
            self._parts.closes_by = time.monotonic() + self._parts.settings.grace
        elif sig != signal.SIGHUP:  # which a closed terminal sends twice
            self._parts.closes_by = time.monotonic()
            self.force_exit = True
        self.should_exit = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._parts.statuses.stop)
            if self.force_exit:
                self._loop.call_soon_threadsafe(self._give_up)


class BoundedHttp(H11Protocol):
    """HTTP with a deadline, which runs while the client is waited for.

    That is: to take what it was sent, and to send a request, or what is left of one that was
    answered before it was whole. Not while a task of ours works, nor while the connection is idle,
    which uvicorn has a timer for.

    And with at most so many connections, and with problem documents: for either uvicorn's own
    answers are in plain text. A gateway that is full still tells how it is. Of the connections
    beyond the bound, which may send nothing, the oldest make room for those that come later.
    """

    seconds = 30.0
    most = 1000
    extra: ClassVar[dict[BoundedHttp, None]] = {}
    """Connections beyond the bound, the oldest first."""
    reserve = WaitSlots(HEALTH_RESERVE)
    warnings = RateLimit(WARNINGS)
    events: GatewayEvents = SILENT
    stopping: Callable[[], bool] = staticmethod(lambda: False)
    _deadline: asyncio.TimerHandle | None = None
    _ended = False
    """It has made room."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        # So that it tells of each byte that is not taken, and not of the first 64 KiB together.
        transport.set_write_buffer_limits(high=0)
        self.app = self._bounded(self.app)
        self._watch()
        taken = transport.get_extra_info("socket")
        if taken is not None and taken.family in (socket.AF_INET, socket.AF_INET6):
            # asyncio does so only where a listener names its protocol, and this one's does not. An
            # answer is two writes, and the second waited 40 ms for the client's acknowledgement.
            taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self.connections) - len(self.extra) > self.most:
            self.extra[self] = None
            if len(self.extra) > EXTRA:
                # The oldest that is not being answered, at the latest this one.
                next(one for one in self.extra if one.conn.our_state is h11.IDLE).make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._rest()
        self.extra.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        """Of what is no HTTP: there is no second answer to a request that has one already."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            with suppress(h11.LocalProtocolError):  # a body where a HEAD is still open
                self._write(_no_http(sys.exception() or msg).response())
        self.transport.close()

    def _write(self, response: Response) -> None:
        headers = [*response.raw_headers, *SECURITY, (b"connection", b"close")]
        reason = HTTPStatus(response.status_code).phrase.encode()
        for event in (
            h11.Response(status_code=response.status_code, headers=headers, reason=reason),
            h11.Data(data=bytes(response.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event))

    def _watch(self) -> None:
        """Has the deadline run, or rest, as it is now; one that runs is not put off."""
        works = not getattr(self.cycle, "response_complete", True)  # None before the first request
        idle = self.timeout_keep_alive_task is not None  # any byte ends that
        if (works or idle) and not self.flow.write_paused:
            self._rest()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.seconds, self.transport.abort)

    def _rest(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _bounded(self, app: ASGIApp) -> Any:
        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            if self._is_within():
                await self._unless_given_up(app(scope, receive, send))
                return
            path = scope["path"].removeprefix(scope["root_path"])
            with self.reserve.slot(wanted=path in HEALTH) as free:
                if free:
                    await self._unless_given_up(app(scope, receive, _closing(send)))
                    return
            # The application never hears of it.
            self.events.answered("", scope["method"], HTTPStatus.SERVICE_UNAVAILABLE, 0.0)
            await self._too_many().response()(scope, receive, send)

        return answer

    async def _unless_given_up(self, answering: Awaitable[None]) -> None:
        """Answers; a call that was given up at the end is no error, for which uvicorn has it."""
        try:
            await answering
        except asyncio.CancelledError:
            if not self.stopping():
                raise

    def _is_within(self) -> bool:
        """Whether it is within the bound, or takes a place there that has become free."""
        if self in self.extra and len(self.connections) - len(self.extra) < self.most:
            del self.extra[self]
        if self._ended or self in self.extra:
            return False
        # Tasks may outlast their connections; those of the others, at most, are not counted.
        return len(self.tasks) - len(self.extra) <= self.most

    def make_room(self) -> None:
        """Ends it, for one that has come later."""
        del self.extra[self]
        self._ended = True
        if self.conn.our_state is h11.IDLE and not self.flow.write_paused:
            self._write(self._too_many().response())
            self.transport.close()
        else:
            self.transport.abort()

    def _too_many(self) -> HttpProblem:
        if not self.warnings.take(time.monotonic()):
            log.warning("too many connections: further ones get 503", bound=self.most,
                        setting="gateway_max_connections")  # fmt: skip
        return HttpProblem(
            503, "unavailable", "too many connections", retry_after=RETRY_AFTER,
            headers={"Connection": "close"},
        )  # fmt: skip


def _closing(send: Send) -> Send:
    """Sends an answer that is the last of its connection."""

    async def closing(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
        await send(message)

    return closing


def _no_http(why: object) -> HttpProblem:
    status = getattr(why, "error_status_hint", 400)
    if status == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
        return HttpProblem(status, "too_large", f"the head of the request is too large: {why}")
    return HttpProblem(status, "invalid_request", f"this is no HTTP: {why}")
