from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from feedback.contract.fingerprint import SIZE, canonical, fingerprint, parse_and_fingerprint
from feedback.contract.payloads import has_long_number, is_json, parse_json, write_json
from tests.support.programs import ROOT

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=12,
)


def same(a: Any, b: Any) -> bool:
    """Equal, and of equal types: 1 is not 1.0 here."""
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


@given(values)
@example({"amount": 2**64})
@example({"amount": -(2**63) - 1})
def test_integers_stay_exact_on_the_way_through(value: Any) -> None:
    assert same(parse_json(write_json(value)), value)
    assert same(parse_json(json.dumps(value).encode()), value)


@given(values)
def test_a_payload_written_again_has_the_same_fingerprint(value: Any) -> None:
    texts = [
        json.dumps(value),
        json.dumps(value, indent=2, sort_keys=True),
        json.dumps(value, ensure_ascii=False, separators=(",", ":")),
    ]
    assert len({fingerprint("t", text.encode()) for text in texts}) == 1


@given(values, values)
def test_other_payloads_have_other_fingerprints(a: Any, b: Any) -> None:
    prints = {fingerprint("t", canonical(value)) for value in (a, b)}
    assert len(prints) == (1 if same(a, b) else 2)


def test_integers_that_floats_cannot_tell_apart() -> None:
    one, other = b'{"amount":36893488147419103232}', b'{"amount":36893488147419103233}'
    assert orjson.loads(one) == orjson.loads(other)
    assert parse_json(one) != parse_json(other)
    assert fingerprint("t", one) != fingerprint("t", other)


def test_the_form_that_is_hashed() -> None:
    digest = hashlib.blake2b(b'pay\x00{"a":[1,2.5],"b":"\xc3\xbc"}', digest_size=SIZE).digest()
    assert fingerprint("pay", b' { "b" : "\\u00fc", "a": [1, 2.50] } ') == digest
    big = hashlib.blake2b(b'pay\x00{"a":12345678901234567890123}', digest_size=SIZE).digest()
    assert fingerprint("pay", b'{"a": 12345678901234567890123}') == big


def test_the_form_depends_on_the_value_not_on_its_spelling() -> None:
    # Only the second spelling has a run of 19 digits.
    assert fingerprint("t", b"[1e20, 0.1]") == fingerprint("t", b"[100000000000000000000.0, 0.1]")


def test_the_type_is_part_of_it() -> None:
    assert fingerprint("a", b"1") != fingerprint("b", b"1")
    assert fingerprint("ab", b"c", "text/plain") != fingerprint("a", b"bc", "text/plain")


def test_bytes_are_taken_as_they_are_where_they_are_not_json() -> None:
    assert fingerprint("t", b"{ }", "text/plain") != fingerprint("t", b"{}", "text/plain")
    assert parse_and_fingerprint("t", b"{ }", "text/plain")[0] == b"{ }"
    broken = hashlib.blake2b(b"t\x00{", digest_size=SIZE).digest()
    assert fingerprint("t", b"{") == broken


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"NaN",
        b"[Infinity]",
        b"[NaN, 12345678901234567890]",
        b"[-Infinity, 12345678901234567890]",
        b"[1e400]",
        b"[1e400, 12345678901234567890]",
        b'["\\ud800"]',
        b'["\\ud800", 12345678901234567890]',
        b"\xef\xbb\xbf[12345678901234567890]",
        b"\xff",
        b"\xff12345678901234567890",
        b"[" * 100_000,
        b"[" * 100_000 + b"12345678901234567890",
        b"1" * 5_000,
        b"[1] 12345678901234567890",
    ],
)
def test_what_is_not_json_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        parse_json(data)
    with pytest.raises(ValueError):
        parse_and_fingerprint("t", data, "application/json")
    assert len(fingerprint("t", data)) == SIZE


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, "\ud800"])
def test_what_json_cannot_hold_is_a_value_error(value: Any) -> None:
    with pytest.raises(ValueError):
        canonical([2**70, value])


def test_an_endless_integer_is_a_value_error() -> None:
    with pytest.raises(ValueError):
        canonical(10**5000)


def test_deep_nesting_is_written_or_refused_but_never_breaks() -> None:
    deep = b"[" * 600 + b"]" * 600
    assert canonical(parse_json(deep)) == deep
    endless: list[Any] = []
    for _ in range(100_000):
        endless = [endless]
    with pytest.raises(ValueError, match="nested"):
        canonical(endless)
    while endless:  # taken apart without recursion
        endless = endless[0]


@given(st.integers(0, 30), st.text(st.sampled_from('0123456789. "-')))
def test_runs_of_digits_are_found(count: int, text: str) -> None:
    data = f"{text}x{'7' * count}".encode()
    assert has_long_number(data) == any(
        data[i : i + 19].isdigit() and len(data[i : i + 19]) == 19 for i in range(len(data))
    )


@pytest.mark.parametrize(
    "content_type, expected",
    [
        ("application/json", True),
        ("application/json; charset=utf-8", True),
        ("Application/JSON", True),
        ("application/vnd.shop.order+json", True),
        ("application/vnd.shop.order+JSON ;v=1", True),
        ("text/plain", False),
        ("application/jsonlines", False),
        ("", False),
    ],
)
def test_media_types(content_type: str, expected: bool) -> None:
    assert is_json(content_type) is expected


OTHER_FORM = """
import orjson
written = orjson.dumps
orjson.dumps = lambda *a, **b: written(*a, **b).replace(b"e+", b"e")  # as orjson 3.11.6 does
import feedback.contract.fingerprint
"""


def test_an_orjson_that_writes_doubles_in_another_form_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OTHER_FORM], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 1
    assert "fingerprints are made of [1e+16,1.5e-7,0.00001,100.0]" in done.stderr
    assert "install orjson>=3.11.7" in done.stderr
