"""Fatal errors of librdkafka, raised on demand."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import confluent_kafka

from tests.support.produce_proxy import OUT_OF_ORDER


def fail_fatally(client: Any, reason: str) -> None:
    """Does to a client of confluent_kafka what librdkafka does for reasons of its own."""
    libraries = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    (path,) = libraries.glob("librdkafka-*")
    raise_in = ctypes.CDLL(str(path)).rd_kafka_test_fatal_error
    raise_in.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p]
    # Its handle is the first field of the object.
    handle = ctypes.c_void_p.from_address(id(client) + object.__basicsize__)
    assert raise_in(handle, OUT_OF_ORDER, reason.encode()) == 0
