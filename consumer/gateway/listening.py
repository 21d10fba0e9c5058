"""The socket that the gateway is reached at."""

from __future__ import annotations

import socket
from typing import Final

from consumer.config.settings import Settings
from consumer.errors import ConsumerError
from processing.logs import get_logger

BACKLOG: Final = 2048
"""Connections that the system keeps until they are taken."""

log = get_logger("oncepool.gateway")


def listening(host: str, port: int) -> socket.socket:
    """It. Raises ConsumerError where it can't be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConsumerError(
            f"the gateway can't listen on {host} port {port}: {error.strerror or error}; end what"
            " has it, or set gateway_host and gateway_port"
        ) from None


def tell(settings: Settings, listener: socket.socket) -> None:
    """Says where it is, and who may call."""
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    log.info("gateway listens", url=f"http://{shown}:{port}{settings.gateway_root_path}",
             keys=sorted(settings.gateway_keys))  # fmt: skip
    if not settings.gateway_keys:
        log.warning(
            "no API keys: any program of this machine may send and operate, and nobody else; make"
            " one with `oncepool gateway --new-key NAME`"
        )
