"""Log lines of every process of an instance: readable in a terminal, JSON otherwise.

structlog's lines and the standard library's (psycopg, redis, a handler's own) take the same way, so
they look alike and obey one level. Fields bound by `bound` are added to whatever is logged inside
it; so are the id and type of the request that runs, in lines of user code too. What such a line
gives under a name of ours stands under `extra_` and that name.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Literal, TextIO

import orjson

from processing.left_out import not_installed
from processing.log_handler import handler_for

# structlog loads rich where it is installed, for tracebacks as `_renderers` does not want them:
# a tenth of what a worker's start costs. So it is imported here alone, before an app can.
with not_installed("rich"):
    import structlog
    from structlog.contextvars import bound_contextvars as bound
    from structlog.stdlib import BoundLogger
    from structlog.typing import EventDict, Processor

__all__ = [
    "RUNNING",
    "BoundLogger",
    "Configured",
    "LogFormat",
    "RateLimited",
    "bound",
    "configure",
    "get_logger",
]

LogFormat = Literal["auto", "console", "json"]

NOISY = ("urllib3", "asyncio", "httpx", "docker", "testcontainers")
"""Libraries whose info lines are of no use to an operator."""


RUNNING: ContextVar[tuple[str | None, str] | None] = ContextVar("oncepool_running", default=None)
"""(request id, type) of what is logged from here on; None: of no request.

Not `bound`, as it is said for each request and costs a tenth of that.
"""


_OURS = frozenset({"timestamp", "level", "message", "logger", "process"})
"""Fields that each line has."""
_OF_RECORDS = frozenset(
    {*logging.makeLogRecord({}).__dict__, "message", "asctime", "color_message"}
)
"""What a line of the standard library's consists of, beside its extras; and what uvicorn adds: the
same message, for terminals."""


def _aside(event: EventDict, name: str) -> None:
    """Makes room for a field of ours: what somebody else has put there stands beside it."""
    event[f"extra_{name}"] = event.pop(name)


def _add_extras(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """What the standard library's callers gave as `extra`, and what all gave under our names."""
    record: logging.LogRecord | None = event.get("_record")
    if record is not None:
        for name, value in record.__dict__.items():
            if name not in _OF_RECORDS:
                event[f"extra_{name}" if name in event else name] = value
    for name in _OURS & event.keys():
        _aside(event, name)
    return event


def _add_running(_logger: Any, _method: str, event: EventDict) -> EventDict:
    if (runs := RUNNING.get()) is not None:
        for name, value in zip(("request_id", "type"), runs, strict=True):
            if value is not None and event.setdefault(name, value) != value:
                _aside(event, name)
                event[name] = value
    return event


_SHARED: Final[list[Processor]] = [
    structlog.contextvars.merge_contextvars,
    _add_extras,
    _add_running,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.StackInfoRenderer(),
]
_STRUCTLOGS: Final[list[Processor]] = [
    structlog.stdlib.filter_by_level,
    structlog.stdlib.PositionalArgumentsFormatter(),
    *_SHARED,
    structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
]
"""They hand their lines to the standard library's loggers, whose handler renders them."""


def get_logger(name: str, **fields: Any) -> BoundLogger:
    """A logger whose lines carry `name` as their ``logger``, and `fields`.

    Whatever an app makes of structlog's own configuration is for the app's loggers alone.
    """
    logger: BoundLogger = structlog.wrap_logger(
        logging.getLogger(name), _STRUCTLOGS, structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True, **fields,
    )  # fmt: skip
    return logger


def configure(
    log_format: LogFormat = "auto",
    level: str = "info",
    *,
    process: str | None = None,
    stream: TextIO | None = None,
) -> Configured:
    """Sends all logging of this process to `stream` (stderr), from `level` on.

    `process` names this process in each line, as ``worker-2``. Calling again replaces the earlier
    configuration. Returns what it has made of the root logger.
    """
    stream = sys.stderr if stream is None else stream
    if not structlog.is_configured():  # what an app has made of it is its own
        structlog.configure(
            processors=_STRUCTLOGS,
            wrapper_class=structlog.stdlib.BoundLogger,
            logger_factory=structlog.stdlib.LoggerFactory(),
            cache_logger_on_first_use=True,
        )
    handler = handler_for(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *([_naming(process)] if process else []),
                *_renderers(log_format, stream),
            ],
            foreign_pre_chain=_SHARED,
        )
    )
    root = Configured(handler, level.upper())
    root.put(alone=True)
    logging.captureWarnings(capture=True)
    least = max(logging.WARNING, logging.getLogger().level)
    for name in NOISY:
        logging.getLogger(name).setLevel(least)
    threading.excepthook = _log_end_of_thread
    sys.unraisablehook = _log_unraisable
    return root


@dataclass(frozen=True)
class Configured:
    """What `configure` has made of the root logger, to be put back after code of others.

    All else that it sets is for programs to change: levels and handlers of loggers that they
    name, hooks, `sys.stderr`.
    """

    handler: logging.Handler
    level: str

    def put(self, *, alone: bool) -> None:
        """Gives the handler and level to the root logger; `alone`: and takes others' handlers."""
        root = logging.getLogger()
        if alone:
            for other in root.handlers[:]:
                root.removeHandler(other)
        root.addHandler(self.handler)
        root.setLevel(self.level)

    def restore(self, *, alone: bool) -> bool:
        """Puts it back where somebody has taken it away; returns whether that was so.

        So does `logging.config.dictConfig` with handlers of the root logger, and a call of
        `logging.basicConfig` with `force`. The first disables loggers that it does not name, too.
        """
        for name, logger in list(logging.getLogger().manager.loggerDict.items()):
            if name.startswith("oncepool") and isinstance(logger, logging.Logger):
                logger.disabled = False
        taken = self.handler not in logging.getLogger().handlers
        if taken:
            self.put(alone=alone)
        return taken


def _log_end_of_thread(args: threading.ExceptHookArgs) -> None:
    """Of a thread that a handler, or a library, has started."""
    if args.exc_type is SystemExit:  # as threading's own has it
        return
    name = None if args.thread is None else args.thread.name
    _log_raised("a thread ended by an exception", args, thread=name)


def _log_unraisable(args: sys.UnraisableHookArgs) -> None:
    """Of what nobody can catch, as in a `__del__`."""
    where = args.err_msg or "Exception ignored in"
    _log_raised("an exception that nobody can catch", args, ignored=f"{where}: {args.object!r}")


def _log_raised(
    message: str, args: threading.ExceptHookArgs | sys.UnraisableHookArgs, **fields: object
) -> None:
    raised = args.exc_value
    error = args.exc_type() if raised is None else raised
    info = (args.exc_type, error, args.exc_traceback)
    get_logger("oncepool.logs").error(message, exc_info=info, **fields)


def writes_json(log_format: LogFormat, stream: TextIO) -> bool:
    """Whether its lines are JSON objects: where nobody looks on, unless something else was said."""
    return log_format == "json" or (log_format == "auto" and not stream.isatty())


def _renderers(log_format: LogFormat, stream: TextIO) -> list[Processor]:
    if not writes_json(log_format, stream):
        # Plain tracebacks: rich ones show local variables, secrets and payloads among them.
        plain = structlog.dev.plain_traceback
        return [structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=plain)]
    return [
        structlog.processors.format_exc_info,
        structlog.processors.EventRenamer("message"),
        _head_first,
        structlog.processors.JSONRenderer(serializer=_to_json),
    ]


def _head_first(_logger: Any, _method: str, event: EventDict) -> EventDict:
    head = {name: event.pop(name) for name in ("timestamp", "level", "message") if name in event}
    return {**head, **event}


def _naming(process: str) -> Processor:
    def add(_logger: Any, _method: str, event: EventDict) -> EventDict:
        event["process"] = process
        return event

    return add


def _to_json(event: EventDict, **_options: Any) -> str:
    # OPT_NON_STR_KEYS and repr: a log line must not fail for what it is given.
    try:
        return orjson.dumps(event, default=repr, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:
        writable = {_as_text(name): _writable(value) for name, value in event.items()}
        return orjson.dumps(writable, default=repr, option=orjson.OPT_NON_STR_KEYS).decode()


def _writable(value: object) -> object:
    """The value; as text where JSON has no form for it: an integer beyond 64 bits, odd keys."""
    try:
        orjson.dumps(value, default=repr, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        return _as_text(value)
    return value


def _as_text(value: object) -> str:
    """Without halves of surrogate pairs, as undecodable file names have in what is raised."""
    text = value if isinstance(value, str) else repr(value)
    return text.encode(errors="replace").decode()


class RateLimited:
    """A logger that lets a flood through as a trickle.

    Of each event, and of each `type` that its fields name, at most `lines` lines go out in one
    second; the first line after that second, or `flush`, says how many were left out. Owned by one
    thread.
    """

    def __init__(
        self,
        log: structlog.typing.FilteringBoundLogger | BoundLogger,
        lines: int = 5,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._lines = lines
        self._clock = clock
        self._windows: dict[tuple[str, Any], _Window] = {}

    def info(self, event: str, **fields: Any) -> None:
        """Logs at level info."""
        self._line("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Logs at level warning."""
        self._line("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Logs at level error."""
        self._line("error", event, fields)

    def flush(self) -> None:
        """Says what was left out of floods that are over; call it now and then."""
        now = self._clock()
        for flood, window in list(self._windows.items()):
            if now - window.opened >= 1.0:
                del self._windows[flood]
                self._tell(flood, window)

    def _line(self, level: str, event: str, fields: dict[str, Any]) -> None:
        now = self._clock()
        flood = (event, fields.get("type"))
        window = self._windows.get(flood)
        if window is None or now - window.opened >= 1.0:
            if window is not None:
                self._tell(flood, window)
            window = self._windows[flood] = _Window(now, level)
        window.seen += 1
        if window.seen <= self._lines:
            getattr(self._log, level)(event, **fields)

    def _tell(self, flood: tuple[str, Any], window: _Window) -> None:
        event, kind = flood
        fields = {} if kind is None else {"type": kind}
        left_out = window.seen - self._lines
        if left_out > 0:
            log = getattr(self._log, window.level)
            log("lines left out", of=event, left_out=left_out, **fields)


class _Window:
    """The second in which an event is counted."""

    __slots__ = ("level", "opened", "seen")

    def __init__(self, opened: float, level: str) -> None:
        self.opened = opened
        self.level = level
        self.seen = 0
