"""`oncepool dead-letters` on the real stack."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Consumer

from consumer.commands import operator as operating
from consumer.commands import resending
from consumer.commands.dead_letter_files import Follower, _continued
from consumer.commands.dead_letter_options import filters
from feedback.status.redis_store import RedisStatusStore
from stack import Stack
from tests.support.commands import Commands, answer
from tests.support.journal import Journal
from tests.support.kafka_topic import read_all
from tests.support.waiting import eventually

MakeLetter = Callable[..., str]


@pytest.fixture
def schema(pooled_schema: str) -> str:
    return pooled_schema


@pytest.fixture
def letter(journal: Journal) -> MakeLetter:
    offsets = iter(range(1000))

    def put(sent: dict[str, str] | None = None, /, **columns: Any) -> str:
        pairs = [[n, base64.b64encode(v.encode()).decode()] for n, v in (sent or {}).items()]
        row = {
            "topic": "requests", "partition": 0, "kafka_offset": next(offsets),
            "produced_at": "2026-05-01T12:00:00Z", "reason": "malformed",
            "detail": "header ce_id is missing", "payload": b'{"n": 1}',
            "headers": orjson.dumps(pairs).decode(),
        }  # fmt: skip
        journal.insert("dead_letters", **{**row, **columns})
        (last,) = journal.rows("SELECT max(id) AS id FROM {s}.dead_letters")
        return str(last["id"])

    return put


def listed(oncepool: Commands, *arguments: str) -> list[Any]:
    rows = answer(oncepool("dead-letters", "list", "--json", *arguments))
    return [row["id"] or row["request_id"] for row in rows]


# list and show


def test_both_kinds_are_listed_under_the_names_of_the_contract(
    oncepool: Commands, journal: Journal, letter: MakeLetter
) -> None:
    number = letter({"ce_type": "payment.create"}, at="2026-05-01")
    journal.put("r", headers='[["a", "Yg=="]]')

    rows = answer(oncepool("dead-letters", "list", "--json"))

    names = "kind id request_id type reason detail at topic partition kafka_offset headers payload"
    assert all(set(names.split()) <= row.keys() for row in rows)
    assert [(r["kind"], r["id"], r["request_id"]) for r in rows] == [
        ("request", None, "r"),
        ("message", int(number), None),
    ]
    assert rows[1]["payload"] == '{"n": 1}'
    text = oncepool("dead-letters", "list").stdout
    assert "payment.create" in text
    assert "header ce_id is missing" in text


def test_the_list_is_narrowed_and_says_when_there_is_more(
    oncepool: Commands, journal: Journal, letter: MakeLetter
) -> None:
    number = int(letter({"ce_type": "order.make"}, at="2026-05-01"))
    journal.put("r", type="order.make")
    journal.put("s", finished_at="2026-05-02")

    assert listed(oncepool, "--kind", "message") == [number]
    assert listed(oncepool, "--type", "order.*") == ["r", number]
    assert listed(oncepool, "--since", "1d") == ["r"]
    assert listed(oncepool, "--search", "ce_id") == [number]
    assert listed(oncepool, "--reason", "handler_error") == ["r", "s"]
    more = oncepool("dead-letters", "list", "--limit", "2")
    assert "there are more than these 2" in more.stderr
    assert "more" not in oncepool("dead-letters", "list", "--limit", "3").stderr


def test_each_kind_is_shown(oncepool: Commands, journal: Journal, letter: MakeLetter) -> None:
    number = letter({"x-tenant": "7"}, payload=b"\xff")
    journal.put("r", fingerprint=b"\1" * 16)

    result = oncepool("dead-letters", "show", number, "r", "nowhere", "--json")

    assert result.exit_code == 4
    assert "nowhere" in result.stderr
    message, request = answer(result)
    assert (message["kind"], message["payload"]) == ("message", "/w==")
    assert (request["kind"], request["attempts"]) == ("request", [])
    assert request["fingerprint"] == "01" * 16
    assert "x-tenant" in oncepool("dead-letters", "show", number).stdout
    assert "handler_error" in oncepool("dead-letters", "show", "r").stdout


def test_a_name_of_both_kinds_needs_the_kind(
    oncepool: Commands, journal: Journal, letter: MakeLetter
) -> None:
    number = journal.put(letter())

    unclear = oncepool("dead-letters", "drop", number)
    done = oncepool("dead-letters", "drop", number, "--kind", "message")

    assert unclear.exit_code == 2
    assert "--kind" in unclear.stderr
    assert done.exit_code == 0, done.output
    assert listed(oncepool) == [number]


# retry


def test_a_message_is_given_an_id_and_type(
    oncepool: Commands, journal: Journal, letter: MakeLetter, stack: Stack, prefix: str
) -> None:
    number = letter()
    refused = oncepool("dead-letters", "retry", number)
    assert refused.exit_code == 6
    assert "header ce_id is missing" in refused.stderr

    done = oncepool("dead-letters", "retry", number, "--id", "new-1", "--type", "a.b", "--json")

    assert done.exit_code == 0, done.output
    (moved,) = answer(done)["moved"]
    assert (moved["id"], moved["from_state"], moved["state"]) == ("new-1", "dead_letter", "waiting")
    assert journal.get("new-1")["type"] == "a.b"
    (status,) = RedisStatusStore(stack.redis, prefix, timeout=30.0).read(["new-1"])
    assert status is not None
    assert (status.state, status.code) == ("waiting", "retried")
    assert oncepool("dead-letters", "retry", number, "--id", "new-2").exit_code == 6
    assert listed(oncepool) == []


def test_a_dead_request_keeps_its_id(oncepool: Commands, journal: Journal) -> None:
    journal.put("r")

    assert oncepool("dead-letters", "retry", "r").exit_code == 0

    assert journal.get("r")["state"] == "waiting"


@pytest.mark.parametrize(
    "options", [("--id", "new-1"), ("--type", "a.b"), ("--resend",)], ids=lambda given: given[0]
)
def test_what_is_for_messages_is_refused_beside_a_dead_request(
    oncepool: Commands, journal: Journal, letter: MakeLetter, options: tuple[str, ...]
) -> None:
    journal.put("r")
    number = letter({"ce_id": "m", "ce_type": "a"})
    names = ["r"] if "--id" in options else [number, "r"]

    result = oncepool("dead-letters", "retry", *names, *options)

    assert result.exit_code == 2
    assert options[0] in result.stderr
    assert "r is a dead request" in " ".join(result.stderr.replace("│", "").split())
    assert set(listed(oncepool)) == {"r", int(number)}


def test_a_resend_of_all_is_of_messages_alone(
    oncepool: Commands, journal: Journal, letter: MakeLetter, topic: Callable[..., str]
) -> None:
    journal.put("r")
    letter({"legacy-id": "7"}, topic=topic())

    result = oncepool("dead-letters", "retry", "--all", "--resend", "--yes", "--json")

    assert result.exit_code == 0, result.output
    assert [moved["state"] for moved in answer(result)["moved"]] == ["sent"]
    assert listed(oncepool) == ["r"]


def test_all_are_retried_that_can_be(
    oncepool: Commands, journal: Journal, letter: MakeLetter
) -> None:
    journal.put("r")
    journal.put("s", type="order.make")
    good = letter({"ce_id": "m", "ce_type": "a"})
    conflict = letter({"ce_id": "r", "ce_type": "a"}, reason="conflict")

    result = oncepool("dead-letters", "retry", "--all", "--yes", "--json")

    assert result.exit_code == 6
    assert [m["id"] for m in answer(result)["moved"]] == ["m", "r", "s"]
    assert [r["id"] for r in answer(result)["refused"]] == [conflict]
    assert listed(oncepool) == [int(conflict)]
    assert good != conflict


def test_filters_narrow_a_retry(oncepool: Commands, journal: Journal, letter: MakeLetter) -> None:
    journal.put("r")
    journal.put("s", type="order.make")

    result = oncepool("dead-letters", "retry", "--type", "order.*", "--yes")

    assert result.exit_code == 0, result.output
    assert listed(oncepool) == ["r"]


def test_a_message_goes_to_its_topic_again(
    oncepool: Commands,
    journal: Journal,
    letter: MakeLetter,
    topic: Callable[..., str],
    stack: Stack,
) -> None:
    # More lies between now and the time at which it was made than the topic takes.
    name = topic(**{"message.timestamp.before.max.ms": "3600000"})
    number = letter({"legacy-id": "7"}, topic=name, key=b"k", payload=b"<order/>")
    begun = time.time()

    result = oncepool("dead-letters", "retry", number, "--resend")

    assert result.exit_code == 0, result.output
    assert listed(oncepool) == []
    consumer = Consumer(
        {"bootstrap.servers": stack.kafka, "group.id": name, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([name])
    message = eventually(lambda: consumer.poll(0.5), timeout=30)
    consumer.close()
    assert message is not None
    assert (message.key(), message.value()) == (b"k", b"<order/>")
    assert message.headers() == [("legacy-id", b"7"), ("ce_time", b"2026-05-01T12:00:00Z")]
    assert message.timestamp()[1] >= int(begun * 1000), "an older one may be deleted at once"


def test_those_that_kafka_does_not_take_stay_and_the_others_go(
    stack: Stack,
    oncepool: Commands,
    journal: Journal,
    letter: MakeLetter,
    topic: Callable[..., str],
) -> None:
    narrow, name = topic(**{"max.message.bytes": "2000"}), topic()
    misnamed = letter(topic="not a topic")
    large = letter(topic=narrow, payload=os.urandom(5000))
    too_large = letter(topic=name, payload=bytes(3 * 1024 * 1024))
    nowhere = letter(topic="", partition=-1, kafka_offset=-1, reason="conflict")
    letter(topic=narrow, payload=b"small")
    letter(topic=name, payload=b"good")

    result = oncepool("dead-letters", "retry", "--all", "--resend", "--yes", "--json")

    assert result.exit_code == 6, result.output
    refused = {one["id"]: one["reason"] for one in answer(result)["refused"]}
    assert set(refused) == {misnamed, large, too_large, nowhere}
    assert "topic not a topic did not take it: Broker: Invalid topic" in refused[misnamed]
    assert "too large" in refused[large]
    assert "too large" in refused[too_large]
    assert "came from no topic" in refused[nowhere]
    assert [one["state"] for one in answer(result)["moved"]] == ["sent", "sent"]
    assert sorted(listed(oncepool)) == sorted(map(int, refused))
    sent = [[record[5] for record in read_all(stack.kafka, of)] for of in (narrow, name)]
    assert sent == [[b"small"], [b"good"]]


def test_brokers_that_do_not_answer_end_a_resend(
    oncepool: Commands, journal: Journal, letter: MakeLetter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resending, "TIMEOUT", 1.0)
    letter(), letter()

    result = oncepool(
        "dead-letters", "retry", "--all", "--resend", "--yes",
        ONCEPOOL_KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1",
    )  # fmt: skip

    assert result.exit_code == 1
    assert "did not take the message" in result.stderr
    assert len(listed(oncepool)) == 2


# drop


def test_dropped_messages_are_gone_and_requests_cancelled(
    oncepool: Commands, journal: Journal, letter: MakeLetter
) -> None:
    number = letter()
    journal.put("r")

    result = oncepool("dead-letters", "drop", number, "r", "nowhere", "--why", "test data")

    assert result.exit_code == 4
    assert listed(oncepool) == []
    assert (journal.get("r")["state"], journal.get("r")["code"]) == ("cancelled", "dropped")
    (noted,) = journal.rows("SELECT * FROM {s}.transitions")
    assert (noted["action"], noted["who"], noted["why"]) == ("drop", "ann", "test data")


@pytest.mark.parametrize("command", ["retry", "drop"])
def test_nothing_is_done_to_all_unasked(
    oncepool: Commands,
    journal: Journal,
    letter: MakeLetter,
    command: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    letter({"ce_id": "m", "ce_type": "a"})
    journal.put("r")

    unasked = oncepool("dead-letters", command, "--all")
    monkeypatch.setattr(operating, "interactive", lambda: True)
    refused = oncepool("dead-letters", command, "--all", stdin="n\n")

    assert (unasked.exit_code, refused.exit_code) == (2, 1)
    assert "2 dead letters (1 message, 1 request)?" in refused.stderr
    assert len(listed(oncepool)) == 2
    assert oncepool("dead-letters", command, "--all", stdin="y\n").exit_code == 0
    assert listed(oncepool) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("retry",),
        ("drop",),
        ("drop", "1", "--all"),
        ("drop", "1", "--search", "x"),
        ("retry", "1", "2", "--id", "x"),
        ("retry", "--all", "--id", "x"),
        ("retry", "1", "--resend", "--id", "x"),
        ("retry", "--resend", "--yes"),
        ("retry", "--resend", "--kind", "request", "--yes"),
        ("list", "--kind", "letter"),
        ("list", "--since", "yesterday"),
    ],
)
def test_wrong_usage(oncepool: Commands, arguments: tuple[str, ...]) -> None:
    assert oncepool("dead-letters", *arguments).exit_code == 2


# export and import


def test_an_export_is_imported_again(
    oncepool: Commands, journal: Journal, letter: MakeLetter, tmp_path: Path
) -> None:
    letter({"ce_type": "a"}, payload=b"\xff")
    journal.put("r")
    assert oncepool("dead-letters", "export", "letters.jsonl").exit_code == 0
    lines = (tmp_path / "letters.jsonl").read_bytes().splitlines()
    assert len(lines) == 2
    assert base64.b64decode(orjson.loads(lines[1])["payload"]) in (b"\xff", b'{"n": 1}')
    journal.run("TRUNCATE {s}.requests, {s}.dead_letters")

    first = oncepool("dead-letters", "import", "letters.jsonl", "--json")
    second = oncepool("dead-letters", "import", "letters.jsonl", "--json")

    assert answer(first) == {"imported": 2, "there": 0, "broken": []}
    assert answer(second) == {"imported": 0, "there": 2, "broken": []}
    assert (first.exit_code, second.exit_code) == (0, 0)
    assert len(listed(oncepool)) == 2


def test_an_export_may_be_narrowed_and_go_to_standard_output(
    oncepool: Commands, journal: Journal, letter: MakeLetter
) -> None:
    letter()
    journal.put("r")

    result = oncepool("dead-letters", "export", "-", "--kind", "request")

    assert [orjson.loads(line)["id"] for line in result.stdout.splitlines()] == ["r"]
    journal.run("TRUNCATE {s}.requests")
    assert oncepool("dead-letters", "import", "-", stdin=result.stdout).exit_code == 0
    assert journal.get("r")["state"] == "dead"


def test_a_file_is_not_overwritten_unasked(
    oncepool: Commands, journal: Journal, tmp_path: Path
) -> None:
    journal.put("r")
    (tmp_path / "there").write_text("mine")

    assert oncepool("dead-letters", "export", "there").exit_code == 2
    assert (tmp_path / "there").read_text() == "mine"
    assert oncepool("dead-letters", "export", "there", "--yes").exit_code == 0
    assert b'"r"' in (tmp_path / "there").read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_broken_lines_are_named_with_their_number(
    oncepool: Commands, journal: Journal, letter: MakeLetter, tmp_path: Path
) -> None:
    letter()
    good = oncepool("dead-letters", "export", "-").stdout
    journal.run("TRUNCATE {s}.dead_letters")
    (tmp_path / "mixed").write_text("{oops\n" + good + '{"kind": "message"}\n')

    result = oncepool("dead-letters", "import", "mixed")

    assert result.exit_code == 1
    assert "line 1 of mixed: Invalid JSON" in result.stderr
    assert "line 3 of mixed: topic: Field required" in result.stderr
    assert "1 imported, 0 were there already, 2 broken lines" in result.stdout
    assert len(listed(oncepool)) == 1


@pytest.mark.parametrize("command", ["import", "export"])
def test_a_file_that_cannot_be_opened_is_a_message(oncepool: Commands, command: str) -> None:
    result = oncepool("dead-letters", command, "no/such/file")

    assert result.exit_code == 1
    assert "no/such/file can't be" in result.stderr


def test_what_comes_is_appended_once(
    oncepool: Commands, journal: Journal, letter: MakeLetter, tmp_path: Path
) -> None:
    file = tmp_path / "follow.jsonl"

    def look(times: int) -> list[Any]:
        with ExitStack() as stack:
            out, seen = _continued(stack, str(file))
            chosen = filters(None, None, None, None, None)
            follower = Follower(out, seen, chosen, journal.schema)
            for _ in range(times):
                follower.look(journal.connection)
        return [orjson.loads(line)["id"] for line in file.read_bytes().splitlines()]

    first = int(letter())
    assert look(2) == [first]
    journal.put("r")
    assert look(2) == [first, "r"]
    with file.open("ab") as out:
        out.write(b'{"kind": "mess')  # a crash in the middle of a line
    second = int(letter())
    assert look(1) == [first, "r", second]
    oncepool("dead-letters", "retry", "r")
    journal.run("UPDATE {s}.requests SET state = 'dead', finished_at = now()")
    assert look(2) == [first, "r", second, "r"], "it died again"


def test_following_goes_on_until_interrupted(
    oncepool: Commands, journal: Journal, letter: MakeLetter, tmp_path: Path
) -> None:
    file = tmp_path / "follow.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-m", "consumer", "dead-letters", "export", str(file), "--follow"],
        env={**os.environ, **oncepool.environ},
        cwd=tmp_path,
    )
    try:
        letter()
        eventually(lambda: file.exists() and file.read_bytes().count(b"\n") == 1, timeout=30)
        journal.put("r")
        eventually(lambda: file.read_bytes().count(b"\n") == 2, timeout=30)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
