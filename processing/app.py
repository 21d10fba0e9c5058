"""The application: handlers, decoders and hooks, as users declare them."""

from __future__ import annotations

from processing.decoder import Decoder
from processing.handler import Handler


class App:
    """What `oncepool run module:attribute` loads."""

    handlers: dict[str, Handler]
    decoders: dict[str, Decoder]

    def start_worker(self) -> None:
        """Run the start hooks, keep their resources, bind every handler."""
        raise NotImplementedError

    def stop_worker(self) -> None:
        """Run the stop hooks and close what generator hooks opened, last opened first."""
        raise NotImplementedError

    def terminate(self) -> None:
        """Run the on_terminate hooks: the process is about to be killed."""
        raise NotImplementedError


def load_app(target: str) -> App:
    """The App that `module:attribute` names; the working directory is importable."""
    raise NotImplementedError
