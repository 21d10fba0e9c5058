"""What one client says is heard as long as it is the one that is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

P = ParamSpec("P")


class Hearing:
    """Callbacks of one client. One that is left behind says things while it ends, in its thread."""

    def __init__(self) -> None:
        self._on = True

    def of(self, callback: Callable[P, None]) -> Callable[P, None]:
        """The callback as the client gets it: it does nothing after the end."""

        def heard(*args: P.args, **kwargs: P.kwargs) -> None:
            if self._on:
                callback(*args, **kwargs)

        return heard

    def end(self) -> None:
        """Nothing is heard any more."""
        self._on = False
