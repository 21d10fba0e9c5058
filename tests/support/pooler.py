"""A proxy that pools transactions, as PgBouncer does with ``pool_mode = transaction``.

A client has a server connection only as long as its transaction is open, and another one for the
next. What it sets for its session stays with whichever connection that was; a backend's pid says
nothing of who uses it now; a client that goes in the middle of a transaction takes the connection
with it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import select
import socket
import struct
import threading
from urllib.parse import urlsplit

import psycopg

NAME = "oncepool pooled"
SSL, GSS, CANCEL = 80877103, 80877104, 80877102
TOLD = (
    *("server_version", "server_encoding", "client_encoding", "DateStyle", "IntervalStyle"),
    *("TimeZone", "integer_datetimes", "standard_conforming_strings"),
)
READY, IDLE, END = b"Z", b"I", b"X"


class Packets:
    """Cuts one direction into messages. Pure."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that are whole now: a letter, a length, and so many bytes."""
        self._rest += data
        found, at = [], 0
        while len(self._rest) - at >= 5:
            (length,) = struct.unpack_from(">i", self._rest, at + 1)
            if len(self._rest) - at < 1 + length:
                break
            found.append(self._rest[at : at + 1 + length])
            at += 1 + length
        self._rest = self._rest[at:]
        return found


class Conversation:
    """Whether a client's transaction is over, from the messages of both sides. Pure."""

    def __init__(self) -> None:
        self._open = 0
        """Answers that end with "ready" and have not come."""
        self._unsynced = False
        self._idle = True

    def asked(self, message: bytes) -> None:
        match message[:1]:
            case b"Q" | b"S" | b"F":
                self._open += 1
                self._unsynced = False
            case b"d" | b"c" | b"f" | b"X":
                pass
            case _:
                self._unsynced = True

    def answered(self, message: bytes) -> None:
        if message[:1] == READY:
            self._open -= 1
            self._idle = message[5:6] == IDLE

    @property
    def over(self) -> bool:
        """Nothing is under way: the server connection may go to somebody else."""
        return not self._open and not self._unsynced and self._idle


class Pooler:
    """Listens on `port`, and shares `size` connections to the database among its clients."""

    def __init__(self, database: str, size: int) -> None:
        self._database, self._size = database, size
        self._free: queue.SimpleQueue[socket.socket | None] = queue.SimpleQueue()
        for _ in range(size):
            self._free.put(None)
        with psycopg.connect(database) as connection:
            status = connection.pgconn.parameter_status
            told = {name: status(name.encode()) or b"" for name in TOLD}
        self._greeting = b"".join([
            b"R" + struct.pack(">ii", 8, 0),
            *(b"S" + struct.pack(">i", 6 + len(n) + len(v)) + n.encode() + b"\0" + v + b"\0"
              for n, v in told.items()),
            b"K" + struct.pack(">iii", 12, os.getpid(), 0), b"Z" + struct.pack(">i", 5) + b"I",
        ])  # fmt: skip
        self.switched = 0
        """How often a client was given another connection than before."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """The database's, through here."""
        address = urlsplit(self._database)
        user, at, _ = address.netloc.rpartition("@")
        return address._replace(netloc=f"{user}{at}127.0.0.1:{self.port}").geturl()

    def shown(self, setting: str) -> set[str]:
        """What it is for clients that set nothing, on each of the connections."""
        return self._answers(f"SHOW {setting}")

    @property
    def heard(self) -> set[str]:
        """Channels that any of the connections listens to, whoever has it."""
        return self._answers("SELECT pg_listening_channels()")

    def _answers(self, query: str) -> set[str]:
        with psycopg.connect(self.url, autocommit=True, prepare_threshold=None) as other:
            asked = [other.execute(query.encode()) for _ in range(2 * self._size)]
            return {value for answer in asked for (value,) in answer}

    def drop_idle(self) -> None:
        """Closes the connections that nobody uses."""
        with contextlib.suppress(queue.Empty):
            for _ in itertools.repeat(None, self._free.qsize()):
                server = self._free.get_nowait()
                if server is not None:
                    server.close()
                self._free.put(None)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop_idle()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError, ConnectionError):
            if self._greet(client):
                self._talk(client)

    def _greet(self, client: socket.socket) -> bool:
        while True:
            head = _exactly(client, 8)
            length, code = struct.unpack(">ii", head)
            _exactly(client, length - 8)
            if code == CANCEL:
                return False
            if code not in (SSL, GSS):
                client.sendall(self._greeting)
                return True
            client.sendall(b"N")

    def _talk(self, client: socket.socket) -> None:
        up, last = Packets(), None
        while data := client.recv(65536):
            messages = up.feed(data)
            if not messages:
                continue
            server = self._take()
            self.switched += last is not None and server is not last
            last = server
            kept = False
            try:
                kept = Transaction(client, server, up).run(messages)
            finally:
                if not kept:
                    server.close()
                self._free.put(server if kept else None)
            if messages[-1][:1] == END:
                return

    def _take(self) -> socket.socket:
        """A connection that works. Raises OSError where there is none."""
        server = self._free.get()
        if server is not None and select.select([server], [], [], 0)[0]:
            server.close()  # the server has said something to nobody: mostly goodbye
            server = None
        try:
            return server or _connect(self._database)
        except (psycopg.Error, OSError) as error:
            self._free.put(None)
            raise ConnectionError from error


def _connect(database: str) -> socket.socket:
    """A connection that is ready. Raises psycopg.OperationalError."""
    with psycopg.connect(database, application_name=NAME, connect_timeout=5) as made:
        server = socket.socket(fileno=os.dup(made.pgconn.socket))
        server.setblocking(True)
        # What psycopg says when it closes it goes elsewhere.
        elsewhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(elsewhere, made.pgconn.socket)
        os.close(elsewhere)
    return server


class Transaction:
    """One client on one server connection, until its transaction is over."""

    def __init__(self, client: socket.socket, server: socket.socket, up: Packets) -> None:
        self._client, self._server = client, server
        self._up, self._down = up, Packets()
        self._talk = Conversation()

    def run(self, messages: list[bytes]) -> bool:
        """Passes messages on, these first; whether the server can be used again."""
        if messages[-1][:1] == END:
            return True  # goodbye between two transactions
        self._ask(messages)
        while True:
            ready, _, _ = select.select([self._client, self._server], [], [])
            if self._server in ready:
                if not self._answer(self._server.recv(262144)):
                    self._client.close()
                    return False
                if self._talk.over:
                    return True
            if self._client in ready:
                data = self._client.recv(262144)
                if not data or not self._ask(self._up.feed(data)):
                    return False

    def _ask(self, messages: list[bytes]) -> bool:
        """False where the client says goodbye in the middle."""
        for message in messages:
            self._talk.asked(message)
        if messages and messages[-1][:1] == END:
            return False
        self._server.sendall(b"".join(messages))
        return True

    def _answer(self, data: bytes) -> bool:
        for message in self._down.feed(data):
            self._talk.answered(message)
        self._client.sendall(data)
        return bool(data)


def _exactly(source: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = source.recv(count - len(data))
        if not more:
            raise ConnectionError
        data += more
    return data
