"""``oncepool send``: one request, or one for each line of a file."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from consumer.admin.statuses import store_of
from consumer.commands.options import KAFKA, REDIS, JsonOption, with_settings
from consumer.commands.output import (
    EXIT_FAILED,
    EXIT_NO_ANSWER,
    EXIT_USAGE,
    counted,
    fail,
    print_json,
    say,
    with_bar,
)
from consumer.commands.send_input import RequestToSend, read_requests
from consumer.commands.status_output import (
    UNKNOWN,
    all_done,
    as_object,
    client_from,
    print_statuses,
    print_summary,
    unknown,
)
from consumer.config.settings import Settings
from feedback.client.client import Client
from feedback.contract.ids import uuid7
from feedback.errors import (
    Conflict,
    DeliveryFailed,
    QueueFull,
    RequestTooLarge,
    StoreUnavailable,
    WaitTimeout,
)
from feedback.status.status import Status

app = typer.Typer()

SHOWN_EACH = 20
"""Up to so many requests are listed one by one for people; more as a summary."""


TypeArgument = Annotated[
    str, typer.Argument(metavar="TYPE", help="Request type, as payment.create.")
]
PayloadArgument = Annotated[
    str | None,
    typer.Argument(
        help="JSON, {} when left out; `-` reads standard input: one JSON document, or one a line."
    ),
]
FileOption = Annotated[
    str | None,
    typer.Option(
        envvar="ONCEPOOL_SEND_FILE",
        metavar="FILE",
        help="Send one request for each line of FILE (`-`: of standard input).",
    ),
]
IdOption = Annotated[
    str | None,
    typer.Option(
        "--id",
        envvar="ONCEPOOL_SEND_ID",
        metavar="ID",
        help="Request id, else one is made; with --file each id is ID-<line number>, so that"
        " the same file can be sent again.",
    ),
]
KeyOption = Annotated[
    str | None,
    typer.Option(envvar="ONCEPOOL_SEND_KEY", metavar="KEY", help="Ordering key, else the id."),
]
WaitOption = Annotated[
    float | None,
    typer.Option(
        envvar="ONCEPOOL_SEND_WAIT",
        metavar="SECONDS",
        min=0.001,
        help="Wait so long for the answers; a single request is sent again meanwhile.",
    ),
]
DelayOption = Annotated[
    float | None,
    typer.Option(
        envvar="ONCEPOOL_SEND_DELAY",
        metavar="SECONDS",
        min=0.0,
        help="Not to be run before so many seconds have passed.",
    ),
]


@app.command()
@with_settings(*KAFKA, *REDIS)
def send(
    settings: Settings,
    *,
    type_: TypeArgument,
    payload: PayloadArgument = None,
    file: FileOption = None,
    id_: IdOption = None,
    key: KeyOption = None,
    wait: WaitOption = None,
    delay: DelayOption = None,
    json: JsonOption = False,
) -> None:
    """Send a request and print its id, or with --wait its status.

    Exit code 1 when a request did not end in `done`, 5 when an answer did not come in time.
    """
    if payload is not None and file is not None:
        raise typer.BadParameter("give PAYLOAD or --file, not both")
    common = {"key": key, "delay": delay}
    common = {name: value for name, value in common.items() if value is not None}
    lines = read_requests(payload, file, id_, common)
    if not lines:
        say("nothing to send: there is no line with a payload")
    many = lines[0].line != "" if lines else True
    sent: list[str] = []
    with client_from(settings) as client, _explained(read=payload == "-"), _told_at_ctrl_c(sent):
        if wait is None:
            _submit(client, type_, lines, sent)
            _print_ids(sent, many=many, json=json)
            return
        if many:
            _submit(client, type_, lines, sent)
            answers = _wait_for(client, sent, wait)
        else:
            answers = [_call(client, type_, lines[0], wait, sent)]
        _close(client, answers)
    cause = _look_again(settings, answers)
    _print_answers(answers, cause, many=many, json=json)


@contextmanager
def _explained(*, read: bool) -> Iterator[None]:
    """What no consumer would take is said in a line; a payload that was `read` is no argument."""
    try:
        yield
    except ValueError as error:
        of_payload = isinstance(error, RequestTooLarge)
        fail(str(error), EXIT_FAILED if read and of_payload else EXIT_USAGE)


@contextmanager
def _told_at_ctrl_c(sent: Sequence[str]) -> Iterator[None]:
    """Names what was sent, whose ids nobody else has: sent once more under others it runs twice."""
    try:
        yield
    except KeyboardInterrupt:
        for id_ in sent:
            typer.echo(id_)
        if sent:
            n = counted(len(sent), "request")
            say(f"interrupted; {n} may be sent by now, and run")
        raise


def _track(lines: Sequence[RequestToSend]) -> Iterable[RequestToSend]:
    """The lines, with a progress bar on a terminal's standard error."""
    if len(lines) < 2 or not sys.stderr.isatty():
        return lines
    return with_bar(lines, "sending")


def _call(
    client: Client, type_: str, line: RequestToSend, wait: float, sent: list[str]
) -> dict[str, Any]:
    """One request: submitted, and sent again until an answer comes. Its id is added to `sent`."""
    options = {"request_id": str(uuid7()), **line.options}
    sent.append(options["request_id"])
    try:
        return as_object(client.call(type_, line.payload, timeout=wait, **options))
    except WaitTimeout as error:
        return _late(error.id, error.status)
    except Conflict as error:
        fail(str(error))


def _submit(client: Client, type_: str, lines: Sequence[RequestToSend], sent: list[str]) -> None:
    """Adds their ids to `sent`. Of a file whose line can't be sent those before it were."""
    for request in _track(lines):
        try:
            sent.append(client.submit(type_, request.payload, **request.options))
        except (ValueError, QueueFull) as error:
            if not request.line:
                raise
            for id_ in sent:
                typer.echo(id_)
            before = counted(len(sent), "request")
            fail(f"{request.line}: {error}; sent before it: {before}")


def _wait_for(client: Client, ids: Sequence[str], wait: float) -> list[dict[str, Any]]:
    end = time.monotonic() + wait
    answers: list[dict[str, Any]] = []
    shown: Iterable[str] = ids
    if sys.stderr.isatty():
        shown = with_bar(ids, "waiting")
    for id_ in shown:
        try:
            answers.append(as_object(client.wait(id_, max(0.001, end - time.monotonic()))))
        except WaitTimeout as error:
            answers.append(_late(id_, error.status))
        except Conflict as error:
            answers.append({"id": id_, "state": "conflict", "error": str(error)})
        except DeliveryFailed as error:
            answers.append({"id": id_, "state": "not_sent", "error": str(error)})
    return answers


def _late(id_: str, status: Status | None) -> dict[str, Any]:
    """What stands when the time is over."""
    return {**(unknown(id_) if status is None else as_object(status)), "late": True}


def _close(client: Client, answers: Sequence[dict[str, Any]]) -> None:
    """Has all of them confirmed, and notes which were not."""
    try:
        client.close()
    except DeliveryFailed as error:
        for answer in answers:
            if answer["id"] in error.failures:
                answer.update(state="not_sent", error=error.failures[answer["id"]])


def _look_again(settings: Settings, answers: Sequence[dict[str, Any]]) -> str:
    """Of what had no status in time, now that all of it is confirmed, says which one stands.

    Returns why nobody could tell, or where statuses were looked for.
    """
    late = {answer["id"]: answer for answer in answers if answer.get("late")}
    if not late:
        return ""
    store = store_of(settings)
    try:
        found = store.read(list(late))
    except StoreUnavailable as error:
        return f": {str(error).rstrip('.')}; `oncepool status` asks the journal"
    finally:
        store.close()
    for answer, status in zip(late.values(), found, strict=True):
        if status is not None and answer["state"] == UNKNOWN:
            answer.update(as_object(status))
    return f" under redis_prefix {settings.redis_prefix!r}; `oncepool status` asks the journal, too"


def _print_ids(ids: Sequence[str], *, many: bool, json: bool) -> None:
    if json:
        objects = [{"id": id_} for id_ in ids]
        print_json(objects if many else objects[0])
        return
    for id_ in ids:
        typer.echo(id_)


def _print_answers(
    answers: Sequence[dict[str, Any]], cause: str, *, many: bool, json: bool
) -> None:
    late = sum(bool(answer.pop("late", False)) for answer in answers)
    if json:
        print_json(answers if many else answers[0])
    elif len(answers) <= SHOWN_EACH:
        print_statuses(answers, json=False)
    else:
        print_summary(answers)
    if late:
        fail(f"{late} of {len(answers)} requests: no answer in time{cause}", EXIT_NO_ANSWER)
    if not all_done(answers):
        raise typer.Exit(EXIT_FAILED)
