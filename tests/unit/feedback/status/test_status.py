from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

import feedback
from feedback.contract import states
from feedback.contract.payloads import parse_json, write_exactly
from feedback.contract.states import FINAL, RANK, SETTLED, State
from feedback.status.hints import hint_messages, hinted_ids
from feedback.status.status import Status, StatusFields, StatusWrite

AT = datetime(2030, 5, 1, 12, 0, 0, 250_000, tzinfo=UTC)


def encode(**changes: Any) -> bytes:
    fields = {"id": "a", "type": "t", "state": State.DONE, "run": 1} | changes
    return StatusFields(
        fields.pop("id"),
        fields.pop("type"),
        fields.pop("state"),
        fields.pop("run"),
        **{"code": "ok", "attempt": 1, "at": AT} | fields,
    ).encode()


def test_the_shape_on_the_wire() -> None:
    value = encode(result=b'{"receipt": 7}', fingerprint=b"\x01" * 16)
    assert value.startswith(b'{"v":"000019",')
    assert orjson.loads(value) == {
        "v": "000019",
        "id": "a",
        "type": "t",
        "state": "done",
        "code": "ok",
        "attempt": 1,
        "at": "2030-05-01T12:00:00.250000Z",
        "fingerprint": "01" * 16,
        "result": {"receipt": 7},
    }


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
moments = st.datetimes(timezones=st.just(UTC))


@given(
    st.builds(
        Status,
        id=texts,
        type=texts,
        state=st.sampled_from(State),
        code=texts,
        attempt=st.integers(0, 100),
        run=st.integers(0, 99_999),
        at=moments,
        fingerprint=st.none() | st.binary(min_size=16, max_size=16).map(bytes.hex),
        result=st.none() | st.integers(-(10**30), 10**30) | st.lists(texts),
        error=st.none() | texts,
        reason=st.none() | texts,
        retry_at=st.none() | moments,
        superseded_by=st.none() | texts,
    )
)
def test_a_status_survives_the_wire(status: Status) -> None:
    from feedback.contract.payloads import write_json

    value = StatusFields(
        status.id,
        status.type,
        status.state,
        status.run,
        code=status.code,
        attempt=status.attempt,
        at=status.at,
        fingerprint=None if status.fingerprint is None else bytes.fromhex(status.fingerprint),
        result=None if status.result is None else write_json(status.result),
        error=status.error,
        reason=status.reason,
        retry_at=status.retry_at,
        superseded_by=status.superseded_by,
    ).encode()
    assert Status.decode(value) == status
    assert value[6:12].decode() == status.v


def test_v_orders_by_run_then_rank() -> None:
    assert encode(run=12, state=State.FAILED)[6:12] == b"000124"
    assert Status.decode(encode(run=12, state=State.FAILED)).v == "000124"
    assert encode(run=1_000_000)[6:12] == b"999999"


def test_times_of_other_zones_are_written_in_utc() -> None:
    at = AT.astimezone(timezone(timedelta(hours=5)))
    assert orjson.loads(encode(at=at))["at"] == "2030-05-01T12:00:00.250000Z"


def test_an_error_text_that_is_not_valid_text_does_not_fail_the_status() -> None:
    status = Status.decode(encode(state=State.FAILED, error="caf\udce9", reason="ok"))
    assert (status.error, status.reason) == ("caf?", "ok")


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"v":"19"}',
        b'{"v":19}',
        b'{"v":"000019","id":"a","type":"t","state":"done"}',
        encode().replace(b'"done"', b'"melted"'),
        encode().replace(b"2030-", b"now-"),
        encode().replace(b"000019", "٠٠٠٠١٩".encode()),
        orjson.dumps(orjson.loads(encode()) | {"code": None}),
        orjson.dumps(orjson.loads(encode()) | {"type": 1}),
        orjson.dumps(orjson.loads(encode()) | {"attempt": "1"}),
        orjson.dumps(orjson.loads(encode()) | {"at": "2030-01-01T00:00:00"}),
        orjson.dumps(orjson.loads(encode()) | {"retry_at": "2030-01-01T00:00:00"}),
        orjson.dumps(orjson.loads(encode()) | {"error": {}}),
        *(
            json.dumps(orjson.loads(encode()) | {name: found}).encode()
            for name, found in (
                ("attempt", 10**30),
                ("attempt", -1),
                ("fingerprint", "zz"),
                ("fingerprint", "abc"),
                ("fingerprint", "5a 1f"),
                ("fingerprint", "\u0661\u0661"),
                ("at", "0001-01-01T00:00:00+14:00"),
                ("retry_at", "9999-12-31T23:59:59-14:00"),
            )
        ),
    ],
)
def test_what_is_no_status_is_a_value_error(value: bytes) -> None:
    with pytest.raises(ValueError):
        Status.decode(value)


def test_times_are_read_in_utc() -> None:
    value = encode(at=AT).replace(b"12:00:00.250000Z", b"17:00:00.250000+05:00")
    assert (Status.decode(value).at, Status.decode(value).at.tzinfo) == (AT, UTC)


def test_states_ranks_and_groups_belong_together() -> None:
    assert set(RANK) == set(State)
    assert {state for state in State if RANK[state] >= 8} == FINAL
    assert {state for state in State if RANK[state] >= 4} == SETTLED
    status = Status.decode(encode(state=State.IN_DOUBT))
    assert (status.settled, status.final) == (True, False)
    assert Status.decode(encode()).final


def test_codes_are_snake_case() -> None:
    codes = [value for name, value in vars(states).items() if name.isupper() and type(value) is str]
    assert "ok" in codes
    assert all(code.replace("_", "").isalpha() and code.islower() for code in codes)


def test_hints_name_their_ids() -> None:
    writes = [
        StatusWrite("a b", encode(id="a b"), 60, reply_to="one"),
        StatusWrite("c", encode(id="c"), 60, reply_to="two"),
        StatusWrite("d", encode(id="d", result=b'" {\\"v\\":\\"1"'), 60, reply_to="one"),
        StatusWrite("e", encode(id="e"), 60),
    ]
    messages = hint_messages(writes)
    assert {channel: hinted_ids(message) for channel, message in messages.items()} == {
        "one": ["a b", "d"],
        "two": ["c"],
    }
    assert messages["two"] == b"c " + encode(id="c")
    assert hinted_ids(b"nonsense\n\n\xff") == []


def test_every_exported_name_exists() -> None:
    for name in feedback.__all__:
        assert getattr(feedback, name).__name__ == name
    assert dir(feedback) == sorted(feedback.__all__)
    with pytest.raises(AttributeError):
        _ = feedback.nonsense


LARGE = {"rows": [{"n": n, "t": '},"result":[1'} for n in range(1000)], "exact": 2**70}


def large(**fields: Any) -> bytes:
    return encode(**{"result": write_exactly(LARGE)} | fields)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"error": "{}"},
        {"reason": ',"result":{}}', "journaled": False},
        {"code": ',"result":{"a":1}'},
        {"retry_at": AT},
        {"superseded_by": "}"},
        {"result": b'"%s"' % (b"x" * 20_000), "error": "x"},
        {"result": b"[%s1]" % (b"1, " * 20_000)},
    ],
)
def test_a_large_result_is_the_same_when_it_is_parsed_later(fields: dict[str, Any]) -> None:
    value = large(**fields)
    whole = Status.decode(value)
    for use in (repr, copy.copy, copy.deepcopy, dataclasses.astuple, dataclasses.replace):
        assert use(Status.decode(value, whole=False)) == use(whole)
    later = Status.decode(value, whole=False)
    assert later == whole
    assert pickle.loads(pickle.dumps(Status.decode(value, whole=False))) == whole
    assert later.result == whole.result == parse_json(later.result_json or b"")


def test_a_large_result_is_given_as_it_came() -> None:
    result = b'{"a": [1.50, %s]}' % b", ".join(b"1e2" for _ in range(10_000))
    status = Status.decode(encode(result=result), whole=False)
    assert status.result_json == result
    assert status.result["a"][:2] == [1.5, 100.0]
    assert status.result is status.result
    assert Status.decode(encode(result=b"[1.50]"), whole=False).result_json == b"[1.5]"
    assert Status.decode(encode()).result_json is None


@pytest.mark.parametrize("broken", [b"[%s}]" % (b"1," * 20_000), b"[" * 20_000 + b"]" * 20_000])
def test_a_large_result_that_is_none_is_told_to_who_reads_it(broken: bytes) -> None:
    status = Status.decode(encode(result=broken), whole=False)
    assert status.state is State.DONE
    with pytest.raises(ValueError):
        _ = status.result


def test_what_has_a_result_in_another_field_is_read_as_a_whole() -> None:
    value = large().replace(b',"result":', b',"x":{"y":1,"result":', 1) + b"}"
    assert Status.decode(value, whole=False).result is None
    with pytest.raises(ValueError):
        Status.decode(value[:-1], whole=False)
