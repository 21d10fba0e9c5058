from __future__ import annotations

import io
import logging
import logging.config
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest
import structlog

from consumer.intake.kafka_log import librdkafka_logger
from processing.logs import RUNNING, RateLimited, bound, configure, get_logger
from tests.support.clock import Clock


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    hooks = threading.excepthook, sys.unraisablehook
    known = [one for one in root.manager.loggerDict.values() if isinstance(one, logging.Logger)]
    able = [one for one in known if not one.disabled]
    yield
    for logger in able:
        logger.disabled = False
    threading.excepthook, sys.unraisablehook = hooks
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in stream.getvalue().splitlines()]


def test_json_where_the_output_is_no_terminal() -> None:
    stream = io.StringIO()
    configure("auto", "info", process="worker-2", stream=stream)

    get_logger("oncepool.worker").info("ready", pid=7)

    (line,) = lines(stream)
    assert list(line)[:3] == ["timestamp", "level", "message"]
    assert line["message"] == "ready"
    assert line["process"] == "worker-2"
    assert line["logger"] == "oncepool.worker"
    assert line["pid"] == 7


def test_readable_in_a_terminal() -> None:
    stream = Terminal()
    configure("auto", "info", stream=stream)

    get_logger("a").info("ready", pid=7)

    assert "ready" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


def test_bound_fields_are_in_everything_that_is_logged_inside() -> None:
    stream = io.StringIO()
    configure("json", "info", stream=stream)

    with bound(request_id="r-1", type="payment.create"):
        get_logger("a").info("ours")
        logging.getLogger("users.code").info("theirs %s", 1)
    get_logger("a").info("outside")

    ours, theirs, outside = lines(stream)
    assert ours["request_id"] == theirs["request_id"] == "r-1"
    assert theirs["message"] == "theirs 1"
    assert theirs["type"] == "payment.create"
    assert "request_id" not in outside


FORGED: dict[str, Any] = {
    "request_id": "forged",
    "type": "card",
    "logger": "L",
    "timestamp": "T",
    "level": 3,
}


@pytest.fixture
def in_a_run() -> Iterator[None]:
    token = RUNNING.set(("r-1", "pay"))
    yield
    RUNNING.reset(token)


@pytest.mark.usefixtures("in_a_run")
@pytest.mark.parametrize("of", ["standard library", "structlog"])
def test_what_a_handler_logs_under_names_of_ours_stands_beside_them(of: str) -> None:
    stream = io.StringIO()
    configure("json", "info", process="worker-2", stream=stream)

    if of == "structlog":
        get_logger("shop").warning("paid", **FORGED, process="p", message="m", amount=5)
        more = {"extra_process": "p", "extra_message": "m"}
    else:
        given = {**FORGED, "event": "declined", "_record": "r"}
        logging.getLogger("shop").warning("paid", extra={**given, "amount": 5})
        more = {"extra_event": "declined", "extra__record": "r"}

    (line,) = lines(stream)
    del line["timestamp"]
    assert line == {
        "level": "warning", "message": "paid", "logger": "shop", "process": "worker-2",
        "request_id": "r-1", "type": "pay", "amount": 5,
        **{f"extra_{name}": value for name, value in FORGED.items()}, **more,
    }  # fmt: skip


def test_outside_a_run_nothing_of_ours_is_in_the_way_of_an_id_and_a_type() -> None:
    stream = io.StringIO()
    configure("json", "info", stream=stream)

    given = {"name": "a", "msg": "x", "levelno": 30, "levelname": "WARNING"}
    record = logging.makeLogRecord({**given, "request_id": "r", "type": "card"})
    logging.Formatter().format(record)  # as another handler has done before
    logging.getLogger().handle(record)

    (line,) = lines(stream)
    assert (line["request_id"], line["type"], line["message"]) == ("r", "card", "x")
    assert not [name for name in line if name.startswith("extra_")]


class Unspeakable:
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


def test_what_uvicorn_says_is_not_said_again_in_colours() -> None:
    stream = io.StringIO()
    configure("json", "info", stream=stream)
    coloured = {"color_message": "Started \x1b[36m%d\x1b[0m"}
    logging.getLogger("uvicorn.error").info("Started %d", 5, extra=coloured)
    (line,) = lines(stream)
    assert (line["message"], "color_message" in line) == ("Started 5", False)


def test_what_can_not_be_formatted_is_one_line_with_its_arguments() -> None:
    stream = io.StringIO()
    configure("json", "info", stream=stream)

    log = logging.getLogger("shop")
    with bound(trace_id="t"):
        log.warning("%s %s", "a")  # noqa: PLE1206 - what this is about
    log.info("%s", Unspeakable())
    log.info(Unspeakable())

    wrong, *silent = lines(stream)
    assert (wrong["message"], wrong["arguments"]) == ("%s %s", "('a',)")
    assert (wrong["level"], wrong["logger"], wrong["trace_id"]) == ("warning", "shop", "t")
    assert "not enough arguments" in wrong["not_formatted"]
    assert wrong["at"].startswith(f"{__file__}:")
    assert [line["message"][:1] for line in silent] == ["%", "<"]


@pytest.mark.parametrize("of", ["standard library", "structlog"])
def test_of_a_line_with_a_value_that_has_no_text_all_else_is_there(of: str) -> None:
    stream = io.StringIO()
    configure("json", "info", stream=stream)

    if of == "structlog":
        get_logger("shop").warning("paid", amount=5, card=Unspeakable(), some=["a", Unspeakable()])
    else:
        more = {"amount": 5, "card": Unspeakable(), "some": ["a", Unspeakable()]}
        logging.getLogger("shop").warning("paid", extra=more)
    logging.getLogger("shop").info("%s %s", "a", Unspeakable())

    line, of_arguments = lines(stream)
    assert (line["message"], line["level"], line["logger"]) == ("paid", "warning", "shop")
    assert (line["amount"], line["not_formatted"]) == (5, "ValueError('no text')")
    assert "Unspeakable object at" in line["card"]
    assert line["some"].startswith("['a', <")
    assert of_arguments["arguments"].startswith("['a', <")
    assert not [name for name in line if name.startswith("extra_")]


def test_one_level_for_both_ways_of_logging() -> None:
    stream = io.StringIO()
    configure("json", "warning", stream=stream)

    get_logger("a").info("no")
    logging.getLogger("b").info("no")
    get_logger("a").warning("yes")
    logging.getLogger("b").warning("yes")

    assert [line["message"] for line in lines(stream)] == ["yes", "yes"]


class Undying:
    def __del__(self) -> None:
        raise RuntimeError("of two\nlines")


def test_what_ends_a_thread_and_what_nobody_can_catch_are_lines_of_ours(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    stream = io.StringIO()
    configure("json", "info", stream=stream)

    thread = threading.Thread(target=lambda: {}["no"], name="of-a-handler")
    thread.start()
    thread.join()
    Undying()

    assert capfd.readouterr().err == ""
    ended, unraisable = lines(stream)
    assert (ended["level"], ended["thread"]) == ("error", "of-a-handler")
    assert "KeyError" in ended["exception"]
    assert unraisable["level"] == "error"
    assert "Undying.__del__" in unraisable["ignored"]
    assert "RuntimeError: of two" in unraisable["exception"]


def test_librdkafkas_lines_are_ours() -> None:
    stream = io.StringIO()
    configure("json", "info", stream=stream)

    librdkafka_logger().error("FAIL [rdkafka#consumer-1]: connection refused")

    assert lines(stream)[0]["logger"] == "librdkafka"


def test_tracebacks_do_not_show_local_variables() -> None:
    for log_format in ("json", "console"):
        stream = io.StringIO()
        configure(log_format, "info", stream=stream)
        secret = "hid" + "den"
        try:
            int("x")
        except ValueError:
            get_logger("a").exception("failed")

        assert "ValueError: invalid" in stream.getvalue()
        assert secret not in stream.getvalue()


def test_what_json_cannot_hold_does_not_fail_a_line() -> None:
    stream = io.StringIO()
    configure("json", "info", stream=stream)

    get_logger("a").info("odd", value=object(), table={1: b"\xff"})
    get_logger("a").info("odder", path="caf\udce9", many=2**70, table={(1, 2): 3}, n=1)

    odd, odder = lines(stream)
    assert odd["message"] == "odd"
    del odder["timestamp"], odder["level"], odder["logger"]
    assert odder == {
        "message": "odder", "path": "caf?", "many": str(2**70), "table": "{(1, 2): 3}", "n": 1,
    }  # fmt: skip


def test_configuring_again_replaces_the_first() -> None:
    first, second = io.StringIO(), io.StringIO()
    log = get_logger("a")
    configure("json", "info", process="one", stream=first)
    log.info("x")
    configure("json", "info", process="two", stream=second)
    log.info("y")

    assert [line["process"] for line in lines(first)] == ["one"]
    assert [line["process"] for line in lines(second)] == ["two"]


class Spy:
    def __init__(self) -> None:
        self.lines = []

    def __getattr__(self, level: str) -> Callable[..., None]:
        return lambda event, **fields: self.lines.append((level, event, fields))


def test_a_flood_becomes_a_trickle_and_says_what_was_left_out() -> None:
    spy, clock = Spy(), Clock(0.0)
    log = RateLimited(spy, lines=2, clock=clock)

    for n in range(10):
        log.warning("commit failed", n=n)
    log.info("another event")
    assert [e for _, e, _ in spy.lines] == ["commit failed", "commit failed", "another event"]

    clock.now = 1.0
    log.warning("commit failed", n=10)

    assert spy.lines[3:] == [
        ("warning", "lines left out", {"of": "commit failed", "left_out": 8}),
        ("warning", "commit failed", {"n": 10}),
    ]


def test_flush_tells_of_a_flood_that_is_over() -> None:
    spy, clock = Spy(), Clock(0.0)
    log = RateLimited(spy, lines=1, clock=clock)
    for _ in range(3):
        log.error("x")

    log.flush()
    assert len(spy.lines) == 1
    clock.now = 1.0
    log.flush()
    log.flush()

    assert spy.lines[1:] == [("error", "lines left out", {"of": "x", "left_out": 2})]


@pytest.mark.parametrize("alone", [True, False])
def test_its_handler_comes_back_where_others_take_its_place(alone: bool) -> None:
    stream, root, other = io.StringIO(), logging.getLogger(), logging.NullHandler()
    configured = configure("json", "info", stream=stream)
    root.addHandler(other)
    assert not configured.restore(alone=alone)
    assert other in root.handlers  # who stands beside it stays
    root.handlers[:] = [other]  # as basicConfig() does by force
    root.setLevel("ERROR")
    assert configured.restore(alone=alone)
    assert (other in root.handlers) is not alone
    get_logger("oncepool.worker").info("ready")
    assert [line["message"] for line in lines(stream)] == ["ready"]
    assert not configured.restore(alone=alone)


def test_what_is_put_back_leaves_all_else_as_others_have_made_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = io.StringIO()
    configured = configure("json", "info", stream=stream)

    class Logged(io.TextIOBase):
        """Sends what is printed to the log, as daemons do."""

        def write(self, text: str) -> int:
            logging.getLogger("printed").error(text.rstrip())
            return len(text)

    def hook(_args: threading.ExceptHookArgs) -> None: ...

    monkeypatch.setattr("threading.excepthook", hook)
    monkeypatch.setattr("sys.stderr", Logged())
    monkeypatch.setattr(logging.getLogger("httpx"), "level", logging.INFO)
    logging.getLogger().handlers[:] = [logging.NullHandler()]
    configured.restore(alone=True)
    logging.getLogger("shop").info("charged")
    assert [line["message"] for line in lines(stream)] == ["charged"]
    assert logging.getLogger("httpx").level == logging.INFO
    assert threading.excepthook is hook


def test_lines_stay_as_they_are_whatever_an_app_configures() -> None:
    stream = io.StringIO()
    log = get_logger("oncepool.worker")
    before = structlog.get_config()
    try:
        configured = configure("json", "info", stream=stream)
        log.info("used before")
        structlog.configure(processors=[structlog.processors.JSONRenderer()])
        # Others are disabled by that, too.
        logging.config.dictConfig({"version": 1, "root": {"handlers": []}})
        configured.restore(alone=True)
        structlog.configure(processors=[structlog.processors.JSONRenderer()])
        log.info("ready", pid=7)
        get_logger("oncepool.later").info("ready", pid=8)
    finally:
        structlog.configure(**before)
    assert [(line["message"], line.get("pid")) for line in lines(stream)] == [
        ("used before", None),
        ("ready", 7),
        ("ready", 8),
    ]
