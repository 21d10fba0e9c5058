"""Frames between the main process and its children, over one socket pair each.

The main process holds a :class:`Channel`, which never blocks: what the socket doesn't take stays in
a remainder that goes out when the socket is writable again. Children hold a
:class:`BlockingChannel`.
"""

from __future__ import annotations

import selectors
import socket
import threading

from processing.ipc.frames import HEADER, Frame, decode, encode

SOCKET_BUFFER = 2 * 1024 * 1024
READ_SIZE = 1024 * 1024


class ChannelClosed(Exception):
    """The process at the other end of a channel has closed it or died."""


class WrongFrame(Exception):
    """The process at the other end says what makes no sense: it is not to be talked to any more."""


class FrameReader:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Takes the next bytes of the stream and returns the frames that are now complete.

        Raises WrongFrame for bytes that are none.
        """
        buffer = self._buffer
        buffer += data
        frames: list[Frame] = []
        start = 0
        while len(buffer) - start >= HEADER.size:
            (length,) = HEADER.unpack_from(buffer, start)
            end = start + HEADER.size + length
            if len(buffer) < end:
                break
            body = memoryview(buffer)[start + HEADER.size : end]
            try:
                frames.append(decode(body))
            except (EOFError, LookupError, TypeError, ValueError) as error:
                raise WrongFrame(f"{length} bytes are no frame: {error}") from error
            finally:
                body.release()
            start = end
        if start:
            del buffer[:start]
        return frames


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets that take two chunks of 1 MiB whole."""
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER)
    return ours, theirs


class Channel:
    """The main process's end: neither send nor receive ever blocks."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._reader = FrameReader()
        self._remainder = bytearray()

    def fileno(self) -> int:
        """The socket's descriptor, for a selector."""
        return self._socket.fileno()

    @property
    def backlog(self) -> int:
        """Bytes that wait until the socket is writable."""
        return len(self._remainder)

    def send(self, frame: Frame) -> None:
        """Sends a frame, or as much of it as the socket takes now; `flush` sends the rest.

        Raises ChannelClosed when the other end is gone.
        """
        self._remainder += encode(frame)
        self.flush()

    def flush(self) -> None:
        """Sends what an earlier `send` had to leave."""
        while self._remainder:
            try:
                sent = self._socket.send(self._remainder)
            except BlockingIOError:
                return
            except OSError as error:
                raise ChannelClosed(f"the other end of the channel is gone: {error}") from error
            del self._remainder[:sent]

    def receive(self) -> list[Frame]:
        """The frames that have arrived, perhaps none.

        Raises WrongFrame, and ChannelClosed at the end of the stream. What the other end sent
        before it died is returned first: the error comes with the next call.
        """
        frames: list[Frame] = []
        while True:
            try:
                data = self._socket.recv(READ_SIZE)
            except BlockingIOError:
                return frames
            except OSError as error:
                # ECONNRESET comes once where the dead end had unread data; its own data was read.
                if frames:
                    return frames
                raise ChannelClosed(f"the other end of the channel is gone: {error}") from error
            if not data:
                if frames:
                    return frames
                raise ChannelClosed("the other end of the channel was closed")
            frames += self._reader.feed(data)
            if len(data) < READ_SIZE:
                return frames

    def drain(self) -> list[Frame]:
        """Every frame that a dead other end still left to be read."""
        frames: list[Frame] = []
        for _ in range(3):  # data, ECONNRESET, end of stream
            try:
                while got := self.receive():
                    frames += got
            except ChannelClosed:
                continue
        return frames

    def close(self) -> None:
        """Closes the socket; the child sees the end of its stream."""
        self._socket.close()


class BlockingChannel:
    """A child's end. Any thread may send; one thread receives."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(True)
        self._socket = sock
        self._reader = FrameReader()
        self._ready: list[Frame] = []
        self._sending = threading.Lock()

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    def send(self, frame: Frame) -> None:
        """Sends a whole frame. Raises ChannelClosed when the main process is gone."""
        data = encode(frame)
        try:
            with self._sending:
                self._socket.sendall(data)
        except OSError as error:
            raise ChannelClosed(f"the main process is gone: {error}") from error

    def receive(self, timeout: float | None = None) -> Frame | None:
        """The next frame, or None when none came in `timeout` seconds (None: wait for ever).

        Raises ChannelClosed when the main process has closed its end or died.
        """
        while not self._ready:
            if timeout is not None and not _readable(self._socket, timeout):
                return None
            try:
                data = self._socket.recv(READ_SIZE)
            except OSError as error:
                raise ChannelClosed(f"the main process is gone: {error}") from error
            if not data:
                raise ChannelClosed("the main process closed the channel")
            self._ready = self._reader.feed(data)
            self._ready.reverse()
        return self._ready.pop()

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()


def _readable(sock: socket.socket, timeout: float) -> bool:
    # Not select.select(): a descriptor may be above 1023.
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        return bool(selector.select(timeout))
