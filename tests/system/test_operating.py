"""Commands that move requests, on the real stack; in this process, as each is quick."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator

import orjson
import pytest

from consumer.commands import operator as operating
from feedback.status.redis_store import RedisStatusStore
from feedback.status.status import Status
from processing.cluster.cancellations import Cancellations
from processing.cluster.instances import Registration, connect
from stack import Stack
from tests.support.commands import Commands, answer
from tests.support.journal import Journal


@pytest.fixture
def schema(pooled_schema: str) -> str:
    return pooled_schema


@pytest.fixture
def status(stack: Stack, prefix: str) -> Iterator[Callable[[str], Status | None]]:
    store = RedisStatusStore(stack.redis, prefix, timeout=30.0)
    yield lambda name: store.read([name])[0]
    store.close()


@pytest.fixture
def at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operating, "interactive", lambda: True)


def state(journal: Journal, id: str) -> str:
    return str(journal.get(id)["state"])


# Listing and showing


def test_types_are_listed_by_pattern(oncepool: Commands, journal: Journal) -> None:
    for name, type_ in (("a", "payment.create"), ("b", "payment_x"), ("c", "order.pay")):
        journal.put(name, type=type_)

    def listed(type_: str) -> set[str]:
        return {r["id"] for r in answer(oncepool("requests", "list", "--type", type_, "--json"))}

    assert listed("payment.*") == {"a"}
    assert listed("pay*") == {"a", "b"}
    assert listed("payment_x") == {"b"}, "an underscore is no pattern"
    assert listed("*pay*") == {"a", "b", "c"}


def test_since_is_the_time_of_the_end(oncepool: Commands, journal: Journal) -> None:
    journal.put("late", created_at="2026-01-01")
    journal.put("early", created_at="2026-01-01", finished_at="2026-01-01")
    journal.put("waits", "waiting", created_at="2026-01-01", due_at="2031-01-01")

    rows = answer(oncepool("requests", "list", "--since", "1h", "--json"))

    assert [row["id"] for row in rows] == ["late"]


def test_a_fingerprint_is_shown_in_hex(oncepool: Commands, journal: Journal) -> None:
    journal.put("r", fingerprint=b"abcdefgh" * 2)

    (listed,) = answer(oncepool("requests", "list", "--json"))
    (shown,) = answer(oncepool("requests", "show", "r", "--json"))

    assert listed["fingerprint"] == shown["fingerprint"] == (b"abcdefgh" * 2).hex()


def test_a_request_is_shown_with_payload_place_and_timeline(
    oncepool: Commands, journal: Journal
) -> None:
    journal.put("r", headers='[["x-tenant", "c2hvcC03"]]')
    oncepool("requests", "retry", "r", "--why", "provider is back")

    (shown,) = answer(oncepool("requests", "show", "r", "--json"))
    text = oncepool("requests", "show", "r").stdout

    assert (shown["payload"], shown["topic"], shown["kafka_offset"]) == ('{"n": 1}', "requests", 7)
    assert [a["run"] for a in shown["attempts"]] == [3]
    assert [(t["who"], t["why"]) for t in shown["transitions"]] == [("ann", "provider is back")]
    assert "x-tenant: shop-7" in text
    assert "provider is back" in text


# Retry


def test_requests_are_retried_by_id_and_their_status_says_so(
    oncepool: Commands, journal: Journal, status: Callable[[str], Status | None]
) -> None:
    journal.put("r", fingerprint=b"\1" * 16)

    result = oncepool("requests", "retry", "r", "--json")

    assert result.exit_code == 0, result.output
    (moved,) = answer(result)["moved"]
    assert (moved["id"], moved["from_state"], moved["state"]) == ("r", "dead", "waiting")
    told = status("r")
    assert told is not None
    assert (told.state, told.code, told.run) == ("waiting", "retried", 4)
    assert told.fingerprint == "01" * 16


def test_requests_are_retried_by_filters(oncepool: Commands, journal: Journal) -> None:
    journal.put("a")
    journal.put("b", type="payment.refund")
    journal.put("c", "failed")
    journal.put("d", type="order.make")
    journal.put("e", finished_at="2026-01-01")

    result = oncepool("requests", "retry", "--type", "payment.*", "--since", "1h", "--yes")

    assert result.exit_code == 0, result.output
    states = {name: state(journal, name) for name in "abcde"}
    assert states == {"a": "waiting", "b": "waiting", "c": "failed", "d": "dead", "e": "dead"}


def test_without_a_terminal_many_are_not_moved_unasked(
    oncepool: Commands, journal: Journal
) -> None:
    journal.put("a")

    result = oncepool("requests", "retry", "--state", "dead")

    assert result.exit_code == 2
    assert "retry 1 request (state dead)?" in " ".join(result.stderr.split())
    assert state(journal, "a") == "dead"


@pytest.mark.parametrize("said,code,after", [("y\n", 0, "waiting"), ("n\n", 1, "dead")])
def test_at_a_terminal_it_asks(
    oncepool: Commands, journal: Journal, at_a_terminal: None, said: str, code: int, after: str
) -> None:
    journal.put("a")

    result = oncepool("requests", "retry", "--state", "dead", stdin=said)

    assert result.exit_code == code
    assert "retry 1 request (" in result.stderr
    assert state(journal, "a") == after


def test_no_request_to_retry_is_no_failure(oncepool: Commands) -> None:
    result = oncepool("requests", "retry", "--state", "dead", "--json")

    assert result.exit_code == 0
    assert answer(result) == {"moved": [], "refused": []}


@pytest.mark.parametrize(
    "arguments",
    [
        ("retry",),
        ("retry", "r", "--type", "a"),
        ("retry", "--state", "done"),
        ("retry", "--since", "yesterday"),
        ("retry", "--since", "99999999999d"),
        ("cancel",),
        ("cancel", "r", "--key", "a"),
        ("resolve", "r"),
        ("resolve", "--as", "done"),
        ("resolve", "r", "--as", "dead"),
        ("resolve", "r", "--as", "failed", "--result", "1"),
    ],
)
def test_wrong_usage(oncepool: Commands, arguments: tuple[str, ...]) -> None:
    assert oncepool("requests", *arguments).exit_code == 2


def test_unknown_states_are_refused_with_the_known_ones(oncepool: Commands) -> None:
    result = oncepool("requests", "list", "--state", "deed")

    assert result.exit_code == 2
    assert "in_doubt" in result.stderr


@pytest.mark.parametrize("command", [("retry",), ("cancel",), ("resolve", "--as", "done")])
def test_a_refusal_is_exit_code_6_and_an_unknown_id_4(
    oncepool: Commands, journal: Journal, command: tuple[str, ...]
) -> None:
    journal.put("r", "done")
    before = journal.get("r")

    refused = oncepool("requests", *command, "r", "--json")
    unknown = oncepool("requests", *command, "nowhere", "--json")
    both = oncepool("requests", *command, "nowhere", "r")

    assert (refused.exit_code, unknown.exit_code, both.exit_code) == (6, 4, 6)
    assert "is done" in answer(refused)["refused"][0]["reason"]
    assert "oncepool: r: is done" in refused.stderr
    assert "the journal has no such request" in unknown.stderr
    assert journal.get("r") == before


@pytest.mark.parametrize(
    "command,state",
    [
        (("requests", "retry"), "dead"),
        (("dead-letters", "retry"), "dead"),
        (("requests", "resolve", "--as", "retry"), "in_doubt"),
    ],
)
def test_what_has_expired_does_not_run_again(
    oncepool: Commands, journal: Journal, command: tuple[str, ...], state: str
) -> None:
    over = base64.b64encode(b"2020-01-01T00:00:00Z").decode()
    journal.put("r", state, headers=orjson.dumps([["ce_expirytime", over]]).decode())
    before = journal.get("r")

    refused = oncepool(*command, "r")

    assert refused.exit_code == 6
    assert "oncepool: r: its ce_expirytime is over: it would be rejected" in refused.stderr
    assert journal.get("r") == before


# Cancel


def test_waiting_requests_are_cancelled(
    oncepool: Commands, journal: Journal, status: Callable[[str], Status | None]
) -> None:
    journal.put("a", "waiting", due_at="2031-01-01")
    journal.put("b", "waiting", due_at="2031-01-01", type="order.make")

    assert oncepool("requests", "cancel", "a").exit_code == 0
    assert oncepool("requests", "cancel", "--type", "order.*", "--yes").exit_code == 0

    assert (state(journal, "a"), state(journal, "b")) == ("cancelled", "cancelled")
    told = status("a")
    assert told is not None
    assert told.final


def test_one_in_hand_is_said_to_run(oncepool: Commands, journal: Journal) -> None:
    journal.put("r", "waiting", token="i:1", due_at="2031-01-01", lease_until="2031-01-01")

    result = oncepool("requests", "cancel", "r")

    assert result.exit_code == 6
    assert "is running right now" in result.stderr


def test_an_instance_that_does_not_answer_is_named_and_hits_nothing_later(
    oncepool: Commands,
) -> None:
    url, prefix = oncepool.environ["ONCEPOOL_REDIS_URL"], oncepool.environ["ONCEPOOL_REDIS_PREFIX"]
    running = {"request_id": "r", "type": "a", "record": "t/0/1", "worker": 3,
               "since": "2026-01-01T00:00:00.000Z"}  # fmt: skip
    with connect(url) as client:
        Registration(client, prefix, "i", 60).renew({"running_requests": [running]})

        result = oncepool("requests", "cancel", "r", "nobody", "--wait", "0.5", "--json")

        assert result.exit_code == 5
        refused = {one["id"]: one["reason"] for one in answer(result)["refused"]}
        assert "runs in worker 3 of i, which did not answer for 0.5 s" in refused["r"]
        assert refused["nobody"] == "the journal has no such request"
        assert Cancellations(client, prefix).take("i") == []


# Resolve


def test_a_doubt_is_settled_with_a_result(
    oncepool: Commands, journal: Journal, status: Callable[[str], Status | None]
) -> None:
    journal.put("r", "in_doubt", token="t", effect="external")

    settle = ("requests", "resolve", "r", "--as", "done", "--result", '{"paid": 5}', "--yes")
    result = oncepool(*settle)

    assert result.exit_code == 0, result.output
    told = status("r")
    assert told is not None
    assert (told.state, told.result) == ("done", {"paid": 5})


@pytest.mark.parametrize("given", ["{oops", "[" * 501 + "]" * 501])
def test_a_result_that_is_not_json_or_nested_too_deeply_is_a_message(
    oncepool: Commands, journal: Journal, given: str
) -> None:
    journal.put("r", "in_doubt")

    result = oncepool("requests", "resolve", "r", "--as", "done", "--result", given)

    assert result.exit_code == 2
    assert "the result is not JSON" in result.stderr
    assert state(journal, "r") == "in_doubt"


# Result records


@pytest.mark.parametrize("topic,records", [("results", ["a", "b", "c"]), ("", [])])
def test_what_operators_end_leaves_records_where_a_topic_is_configured(
    oncepool: Commands, journal: Journal, topic: str, records: list[str]
) -> None:
    journal.put("a", "waiting", due_at="2031-01-01")
    journal.put("b", "in_doubt")
    journal.put("c", "dead")

    for arguments in (
        ("requests", "cancel", "a"),
        ("requests", "resolve", "b", "--as", "failed"),
        ("dead-letters", "drop", "c"),
    ):
        result = oncepool(*arguments, ONCEPOOL_KAFKA_RESULTS_TOPIC=topic)
        assert result.exit_code == 0, result.output

    rows = journal.rows("SELECT request_id FROM {s}.results ORDER BY id")
    assert [row["request_id"] for row in rows] == records


# Redis away


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", ""])
def test_without_redis_the_journal_moves_and_a_warning_says_so(
    oncepool: Commands, journal: Journal, url: str
) -> None:
    journal.put("r")

    result = oncepool("requests", "retry", "r", ONCEPOOL_REDIS_URL=url)

    assert result.exit_code == 0, result.output
    assert result.stderr.count("warning") == 1
    assert state(journal, "r") == "waiting"
