from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import orjson
import pytest

from consumer.commands import send as send_command
from feedback.errors import OncepoolError, RequestTooLarge
from tests.support.command_line import oncepool

pytestmark = pytest.mark.usefixtures("unconfigured")


class FakeClient:
    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes, dict[str, Any]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, type_: str, payload: bytes, **options: Any) -> str:
        self.sent.append((type_, payload, options))
        return str(options.get("request_id", f"made-{len(self.sent)}"))


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    made = FakeClient()
    monkeypatch.setattr(send_command, "client_from", lambda _settings: made)
    return made


def test_send_prints_the_id(client: FakeClient) -> None:
    result = oncepool("send", "a", '{"n": 1}', "--id", "x", "--key", "k", "--delay", "2")

    assert result.stdout == "x\n"
    assert client.sent == [("a", b'{"n": 1}', {"request_id": "x", "key": "k", "delay": 2.0})]


def test_what_no_consumer_takes_is_refused_in_a_line(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise ValueError("delay=400000000.0 lies more than ten years ahead")

    monkeypatch.setattr(client, "submit", refuse)
    result = oncepool("send", "a", "--delay", "400000000")

    assert (result.exit_code, result.stderr) == (
        2,
        "oncepool: delay=400000000.0 lies more than ten years ahead\n",
    )


def test_options_can_come_from_the_environment(client: FakeClient) -> None:
    oncepool("send", "a", env={"ONCEPOOL_SEND_ID": "x", "ONCEPOOL_SEND_KEY": "k"})

    assert client.sent == [("a", b"{}", {"request_id": "x", "key": "k"})]


def test_send_reads_standard_input(client: FakeClient) -> None:
    result = oncepool("send", "a", "-", "--json", input='{"n":\n 1}')

    assert orjson.loads(result.stdout) == {"id": "made-1"}
    assert client.sent[0][1] == b'{"n":\n 1}'


def test_standard_input_of_several_documents_is_a_request_a_line(client: FakeClient) -> None:
    given = '{"n": 1}\n\n{"n": 2}\n'
    result = oncepool("send", "a", "-", "--id", "batch", "--json", input=given)

    assert orjson.loads(result.stdout) == [{"id": "batch-1"}, {"id": "batch-3"}]
    assert [payload for _, payload, _ in client.sent] == [b'{"n": 1}', b'{"n": 2}']


def test_send_a_request_a_line(client: FakeClient, tmp_path: Path) -> None:
    (tmp_path / "lines.jsonl").write_text('{"n": 1}\n\n{"n": 2}\n')

    result = oncepool("send", "a", "--file", "lines.jsonl", "--id", "batch", "--json")

    assert orjson.loads(result.stdout) == [{"id": "batch-1"}, {"id": "batch-3"}]
    assert [payload for _, payload, _ in client.sent] == [b'{"n": 1}', b'{"n": 2}']


def test_what_is_read_and_cannot_be_sent_is_no_wrong_argument(
    client: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = oncepool("send", "a", "-", input="{oops")
    assert (result.exit_code, client.sent) == (1, [])
    assert "standard input is not JSON" in result.stderr

    def refused(*_: object, **__: object) -> None:
        raise errors.pop()

    monkeypatch.setattr(type(client), "submit", refused)
    errors: list[Exception] = [RequestTooLarge("1 byte too many") for _ in range(3)]
    (tmp_path / "large").write_text("{}")
    ways = (["-"], ["--file", "large"], ["{}"])
    codes = [oncepool("send", "a", *way, input="{}").exit_code for way in ways]
    assert codes == [1, 1, 2]
    errors.append(ValueError("the type is too long"))
    assert oncepool("send", "a", "-", input="{}").exit_code == 2


@pytest.mark.parametrize(
    "arguments,message,code",
    [
        (("{oops",), "PAYLOAD is not JSON", 2),
        (("--file", "bad.jsonl"), "line 2 of bad.jsonl is not JSON", 1),
        (("--file", "missing"), "missing can't be read", 1),
        (("-",), "line 2 of standard input is not JSON", 1),
    ],
)
def test_send_refuses_what_is_not_json_before_anything_is_sent(
    client: FakeClient, tmp_path: Path, arguments: tuple[str, ...], message: str, code: int
) -> None:
    (tmp_path / "bad.jsonl").write_text("{}\nno\n")

    result = oncepool("send", "a", *arguments, input="{}\nno\n")

    assert result.exit_code == code
    assert message in result.stderr
    assert client.sent == []


def test_a_line_that_cannot_be_sent_is_named_with_what_was_sent_before(
    client: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = client.submit

    def submit(type_: str, payload: bytes, **options: Any) -> str:
        if len(payload) > 10:
            raise ValueError("request is too large for Kafka")
        return send(type_, payload, **options)

    monkeypatch.setattr(client, "submit", submit)
    (tmp_path / "lines").write_text('{"n": 1}\n\n{"n": 1234567}\n{}\n')

    result = oncepool("send", "a", "--file", "lines")

    assert result.exit_code == 1
    assert result.stdout == "made-1\n", "the id of what was sent"
    assert result.stderr == (
        "oncepool: line 3 of lines: request is too large for Kafka; sent before it: 1 request\n"
    )


@pytest.mark.parametrize("more, stdout", [((), ""), (("--json",), "[]\n")])
def test_a_file_without_a_line_is_nothing_to_send(
    client: FakeClient, tmp_path: Path, more: tuple[str, ...], stdout: str
) -> None:
    (tmp_path / "lines").write_text("\n")
    result = oncepool("send", "a", "--file", "lines", *more)
    assert (result.exit_code, result.stdout, client.sent) == (0, stdout, [])
    assert result.stderr.startswith("oncepool: nothing to send")


def test_an_error_of_ours_is_a_message_not_a_traceback(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> str:
        raise OncepoolError("the queue is full")

    monkeypatch.setattr(client, "submit", broken)

    result = oncepool("send", "a")

    assert (result.exit_code, result.stderr) == (1, "oncepool: the queue is full\n")
