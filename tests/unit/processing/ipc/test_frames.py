"""Every frame crosses the wire as it was, of the type that it was."""

from __future__ import annotations

import marshal
from typing import Any, get_args

import pytest

from processing.ipc.frames import HEADER, Frame, Report, RunChunk, Suspect, decode, encode

RECORD = ("topic", 0, 1, 2, b"key", b"value", [("name", None)], "type", None)
SUSPECT = Suspect("timeout", ((4711, "then"),), ("token",), 2)
SAMPLES: dict[Any, Any] = {
    "RunChunk": RunChunk(3, "token", [RECORD], SUSPECT, 1, 4),
    "Report": Report(3, [1], [2], {"k": (1, 0.5)}, {("t", "s", "c"): 1}, True),
}


@pytest.mark.parametrize("kind", get_args(Frame), ids=lambda kind: kind.__name__)
def test_a_frame_comes_out_as_it_went_in(kind: Any) -> None:
    frame = SAMPLES.get(kind.__name__) or kind(*range(len(kind._fields)))
    found = decode(encode(frame)[HEADER.size :])
    assert type(found) is kind
    assert found == frame


def test_a_suspect_is_one_again() -> None:
    found = decode(encode(SAMPLES["RunChunk"])[HEADER.size :])
    assert isinstance(found, RunChunk)
    assert isinstance(found.suspect, Suspect)


def test_the_wire_has_plain_tuples_only() -> None:
    body = marshal.loads(encode(SAMPLES["RunChunk"])[HEADER.size :])
    assert body[1:] == (3, "token", [RECORD], tuple(SUSPECT), 1, 4)
    with pytest.raises(ValueError, match="unmarshallable"):
        encode(RunChunk(3, "token", [object()], None, 0))  # type: ignore[list-item]
