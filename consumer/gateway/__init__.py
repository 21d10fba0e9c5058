"""The HTTP gateway: requests, statuses and operators' moves for whoever speaks HTTP.

    from consumer.gateway import create_app

    api.mount("/oncepool", create_app(load_settings()))

Names are loaded on first use, so that a missing extra is told in words.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from consumer.errors import ConsumerError

if TYPE_CHECKING:
    from consumer.gateway.app import create_app, lifespan
    from consumer.gateway.server import serve

__all__ = ["create_app", "lifespan", "serve"]

_HOMES = {"serve": "server"}
_EXTRA = frozenset({"fastapi", "starlette", "uvicorn", "h11", "jinja2"})


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        home = import_module(f"{__name__}.{_HOMES.get(name, 'app')}")
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        raise ConsumerError(f"the gateway needs {error.name}: install oncepool[gateway]") from None
    return getattr(home, name)


def __dir__() -> list[str]:
    return sorted(__all__)
