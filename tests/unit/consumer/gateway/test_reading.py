"""What is read out of headers and paths, and what is decided from it: without I/O."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.gateway.idempotency import KeysInFlight, read_key
from consumer.gateway.path_names import NameConvertor, in_path, routed_path
from consumer.gateway.preferences import Preferences, read_preferences
from consumer.gateway.problems import HttpProblem, problem_of
from consumer.gateway.rate_limit import RateLimit, WaitSlots
from consumer.gateway.submission import is_sent, read_options, read_payload
from feedback import errors
from feedback.contract.states import State
from feedback.status.status import Status
from tests.support.gateway import AT, FakeJournal


@pytest.mark.parametrize(
    "header,key",
    [
        (b"order-17", "order-17"),
        (b'"order-17"', "order-17"),
        (rb'"a \"b\" \\ c"', r'a "b" \ c'),
        ("bestelling-é".encode(), "bestelling-é"),
        (b"  spaces around  ", "spaces around"),
        (b'in"side', 'in"side'),
    ],
)
def test_a_key_is_quoted_or_not(header: bytes, key: str) -> None:
    assert read_key([header]) == key
    assert read_key([]) is None


@pytest.mark.parametrize(
    "headers",
    [[b""], [b'""'], [b'"open'], [b'"a"b"'], [rb'"\n"'], [b"\xff"], [b"a\x01"], [b"x" * 201],
     [b"a", b"a"], [b"\x7f"]],
)  # fmt: skip
def test_what_is_no_key_is_refused(headers: list[bytes]) -> None:
    with pytest.raises(HttpProblem) as raised:
        read_key(headers)
    assert raised.value.status_code == 400


@given(st.text(min_size=1, max_size=200).filter(lambda text: text.isprintable()))
def test_every_id_has_a_path_that_leads_back_to_it(name: str) -> None:
    path = routed_path(f"/requests/{in_path(name)}/retry".encode())
    assert path.count("/") == 3
    assert NameConvertor().convert(path.split("/")[2]) == name


def test_a_path_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(ValueError):
        routed_path(b"/requests/%ff")


@pytest.mark.parametrize(
    "headers,expected",
    [
        ([], Preferences()),
        (["respond-async, wait=10"], Preferences(respond_async=True, wait=10)),
        (["Wait=3", "respond-async"], Preferences(respond_async=True, wait=3)),
        (['wait="5"; x=1, return=minimal'], Preferences(wait=5)),
        (["wait=1, wait=2"], Preferences(wait=1)),
        (["wait=-1"], Preferences()),
        (["wait=1.5"], Preferences()),
        (["wait"], Preferences()),
        (["wait=99999999999999"], Preferences()),
        (['foo="a, b"; bar="c;d", wait=4'], Preferences(wait=4)),
        (["=;,,,"], Preferences()),
        (["respond-async,, wait=5"], Preferences(respond_async=True, wait=5)),
        ([", wait=5"], Preferences(wait=5)),
        (["foo bar, =x, wait=5"], Preferences(wait=5)),
    ],
)
def test_preferences(headers: list[str], expected: Preferences) -> None:
    assert read_preferences(headers) == expected


@pytest.mark.timeout(30)  # a quarter of an hour and more, where it grew with the square
@pytest.mark.parametrize(
    "start,repeated,end,known",
    [
        ("wait=1;", " ", '"', False),
        ("wait=1;", ' ""', '"', False),
        ('wait=1; x="', " ", "", False),
        ("wait=1;", '"\\"', "", False),
        ("wait=1", " ", '"', False),
        ("wait=", " ", '"', False),
        ("wait=1;", " ", ', foo;"', True),
    ],
)
def test_preferences_are_read_in_a_time_that_grows_with_their_length(
    start: str, repeated: str, end: str, known: bool
) -> None:
    assert read_preferences([start + 400_000 * repeated + end]) == Preferences(
        wait=1 if known else None
    )


@given(st.text(max_size=100))
def test_no_preference_breaks_anything(text: str) -> None:
    read_preferences([text])


def test_what_was_applied_is_said() -> None:
    assert Preferences().applied(None) == ""
    assert Preferences(respond_async=True, wait=90).applied(60.0) == "respond-async, wait=60"
    assert Preferences(wait=5).applied(None) == ""


def test_a_key_is_held_once_at_a_time() -> None:
    keys = KeysInFlight()
    with keys.hold("k", "t", b"one"):
        with pytest.raises(HttpProblem) as same, keys.hold("k", "t", b"one"):
            pass
        with pytest.raises(HttpProblem) as other, keys.hold("k", "t", b"two"):
            pass
        with keys.hold("l", "t", b"one"):
            pass
    assert (same.value.status_code, other.value.status_code) == (409, 422)
    with keys.hold("k", "t", b"two"):
        pass


def test_of_types_that_cant_be_compared_another_payload_is_the_same_request() -> None:
    keys = KeysInFlight()
    with keys.hold("k", "t", None):
        with pytest.raises(HttpProblem) as same, keys.hold("k", "t", None):
            pass
        with pytest.raises(HttpProblem) as other, keys.hold("k", "u", None):
            pass
    assert (same.value.status_code, other.value.status_code) == (409, 422)


@pytest.mark.parametrize("key", [b".", b"..", b'"."', b'".."'])
def test_a_key_that_no_address_can_end_in_is_refused(key: bytes) -> None:
    with pytest.raises(HttpProblem) as refused:
        read_key([key])
    assert (refused.value.status_code, refused.value.code) == (400, "invalid_request")
    assert "no address" in refused.value.detail


def test_a_rate_has_bursts_and_says_when_to_come_again() -> None:
    limit = RateLimit(2)
    assert [limit.take(10.0) for _ in range(4)] == [0.0] * 4
    assert limit.take(10.0) == pytest.approx(0.5)
    assert limit.take(10.5) == 0.0
    assert limit.take(10.5) > 0
    assert all(RateLimit(0).take(0.0) == 0.0 for _ in range(100))
    slow = RateLimit(0.1)
    assert slow.take(0.0) == 0.0
    assert slow.take(0.0) == pytest.approx(10.0)


def test_waits_are_counted() -> None:
    slots = WaitSlots(1)
    with slots.slot(wanted=True) as first, slots.slot(wanted=True) as second:
        assert (first, second) == (True, False)
    assert slots.taken == 0


def test_headers_of_cloudevents_are_options() -> None:
    headers = [
        (b"CE-PartitionKey", b"customer-4"),
        (b"ce-reference", b"article-9"),
        (b"ce-notbefore", b"2030-05-01T12:00:00Z"),
        (b"ce-expirytime", b"2030-05-01T13:00:00+01:00"),
        (b"ce-timeout", b"2.5"),
        (b"ce-source", b"/shop"),
        (b"traceparent", b"00-1-2-01"),
        (b"accept", b"*/*"),
    ]
    assert read_options(headers, "text/plain") == {
        "key": "customer-4",
        "reference": "article-9",
        "not_before": datetime(2030, 5, 1, 12, tzinfo=UTC),
        "expires": datetime(2030, 5, 1, 12, tzinfo=UTC),
        "timeout": 2.5,
        "headers": {"content-type": "text/plain", "ce_source": "/shop", "traceparent": "00-1-2-01"},
    }
    assert read_options([], "application/json") == {}


@pytest.mark.parametrize(
    "said,meant",
    [
        (b"account%201", "account 1"),
        (b"Gr%C3%BC%C3%9Fe", "Gr\u00fc\u00dfe"),
        ("Gr\u00fc\u00dfe".encode(), "Gr\u00fc\u00dfe"),
        (b"100%25", "100%"),
        (b"%2541", "%41"),
        (b"100%", "100%"),
        (b'"account 1"', "account 1"),
        (rb'"a \"b\" \\c"', r'a "b" \c'),
        (b'"a" b', '"a" b'),
    ],
)
def test_attributes_are_decoded_once(said: bytes, meant: str) -> None:
    headers = [(b"ce-partitionkey", said), (b"ce-source", said), (b"tracestate", b"a=%41")]
    assert read_options(headers, "application/json") == {
        "key": meant,
        "headers": {"ce_source": meant, "tracestate": "a=%41"},
    }


@pytest.mark.parametrize(
    "name,value",
    [
        (b"ce-id", b"x"),
        (b"ce-type", b"x"),
        (b"ce-notbefore", b"tomorrow"),
        (b"ce-expirytime", b"2030-05-01T12:00:00"),
        (b"ce-timeout", b"soon"),
        (b"ce-reference", b"\xff"),
        (b"ce-reference", b"%FF"),
    ],
)
def test_headers_that_can_not_be_read_are_refused(name: bytes, value: bytes) -> None:
    with pytest.raises(HttpProblem) as raised:
        read_options([(name, value)], "application/json")
    assert raised.value.status_code == 400
    assert name.decode() in raised.value.detail


def test_a_header_that_stands_twice_is_refused() -> None:
    with pytest.raises(HttpProblem):
        read_options([(b"ce-source", b"a"), (b"ce-source", b"b")], "application/json")


PAYLOAD = read_payload("a.b", b'{"b":1, "a":2}', None)


@pytest.mark.parametrize(
    "state,sent",
    [
        (State.ACCEPTED, True),
        (State.RUNNING, True),
        (State.WAITING, False),
        (State.FAILED, True),
        (State.IN_DOUBT, True),
        (State.DEAD, False),
        (State.DONE, False),
        (State.REJECTED, False),
    ],
)
def test_what_may_have_been_lost_is_sent_again(state: State, sent: bool) -> None:
    same = FakeJournal().put("k", state, fingerprint=PAYLOAD.fingerprint.hex())
    assert is_sent(same, "a.b", PAYLOAD, now=AT) is sent
    assert is_sent(None, "a.b", PAYLOAD, now=AT)


def test_what_is_said_of_a_message_that_could_not_be_read_keeps_no_request_from_going() -> None:
    theirs = Status("a", "other", State.FAILED, "malformed", 1, 1, AT, journaled=False)
    assert is_sent(theirs, "a.b", PAYLOAD, now=AT)


def test_what_waits_beyond_its_time_is_sent_again() -> None:
    late = FakeJournal().put("k", State.WAITING, retry_at=AT)
    assert is_sent(late, "a.b", PAYLOAD, now=AT)
    assert not is_sent(late, "a.b", PAYLOAD, now=AT - timedelta(seconds=1))


def test_another_payload_or_type_is_refused() -> None:
    same = read_payload("a.b", b'{"a": 2, "b": 1}', "application/json; charset=utf-8")
    known = FakeJournal().put("k", State.DONE, fingerprint=PAYLOAD.fingerprint.hex())
    assert not is_sent(known, "a.b", same, now=AT)
    other = read_payload("a.b", b'{"a": 3}', None)
    for kind, payload in (("a.b", other), ("a.c", same)):
        with pytest.raises(HttpProblem) as raised:
            is_sent(known, kind, payload, now=AT)
        assert raised.value.status_code == 422
    # Their own fingerprints can't be compared.
    assert not is_sent(known, "a.b", other, ["a.b"], now=AT)
    assert not is_sent(FakeJournal().put("k", State.DONE), "a.b", other, now=AT)


@pytest.mark.parametrize("body,kind", [(b"", None), (b"{", None), (b"NaN", "application/x+json")])
def test_a_body_that_is_not_what_it_says_is_refused(body: bytes, kind: str | None) -> None:
    with pytest.raises(HttpProblem) as raised:
        read_payload("a.b", body, kind)
    assert (raised.value.status_code, raised.value.code) == (400, "invalid_payload")
    assert read_payload("a.b", b"{", "text/plain").body == b"{"


def test_structured_events_are_refused() -> None:
    with pytest.raises(HttpProblem) as raised:
        read_payload("a.b", b"{}", "application/cloudevents+json")
    assert raised.value.status_code == 415


@pytest.mark.parametrize(
    "error,status",
    [
        (errors.StoreUnavailable("redis://u:secret@h is away"), 503),
        (errors.DeliveryFailed({"k": "timed out"}), 503),
        (errors.QueueFull("k", 1), 503),
        (errors.SchemaMissing("oncepool"), 503),
        (errors.OutboxMissing("o", "no table"), 503),
        (errors.RequestIdInUse("k"), 422),
        (errors.Conflict("k", FakeJournal().put("k", State.DONE)), 422),
        (errors.OncepoolError("else"), 500),
    ],
)
def test_errors_become_problems(error: errors.OncepoolError, status: int) -> None:
    problem = problem_of(error)
    assert problem.status_code == status
    assert "secret" not in problem.detail
    assert (dict(problem.headers or {}).get("Retry-After") is not None) is (status == 503)


def test_a_status_of_a_row_keeps_its_time() -> None:
    status: Any = FakeJournal().put("k", State.DONE)
    assert status.at == AT
