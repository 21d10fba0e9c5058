"""The header Idempotency-Key, and which keys have a request that is not answered yet."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from consumer.gateway.problems import HttpProblem, another_payload, invalid
from feedback.contract.headers import check_name
from feedback.errors import Malformed

_QUOTED: Final = re.compile(rb'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
_ESCAPED: Final = re.compile(rb'\\(["\\])')
_NO_SEGMENTS: Final = frozenset({".", ".."})
"""What in a path means this place, or the one above (RFC 3986, 5.2.4), also where it is encoded."""


def read_key(values: Sequence[bytes]) -> str | None:
    """The key, which is the request's id: quoted, as RFC 8941 has strings, or as it is.

    Raises HttpProblem for what is no id.
    """
    if not values:
        return None
    if len(values) > 1:
        raise invalid("the header Idempotency-Key stands more than once")
    raw = values[0].strip()
    if raw.startswith(b'"'):
        quoted = _QUOTED.fullmatch(raw)
        if quoted is None:
            raise invalid("the header Idempotency-Key is not a quoted string as RFC 8941 has it")
        raw = _ESCAPED.sub(rb"\1", quoted[1])
    try:
        key = check_name("the Idempotency-Key", raw.decode())
    except UnicodeDecodeError:
        raise invalid("the header Idempotency-Key is not UTF-8") from None
    except Malformed as error:
        raise invalid(str(error)) from None
    if key in _NO_SEGMENTS:
        raise invalid(f"the Idempotency-Key is {key!r}, which has no address: clients leave it out")
    return key


class KeysInFlight:
    """Ids whose first request is on its way here, each with its type and payload's fingerprint."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[str, bytes | None]] = {}

    @contextmanager
    def hold(self, id: str, type: str, fingerprint: bytes | None) -> Iterator[None]:
        """Meanwhile nobody else holds it. Raises HttpProblem where somebody does.

        Without a fingerprint payloads of this type can't be compared.
        """
        meant = (type, fingerprint)
        there = self._held.get(id)
        if there is not None and there != meant:
            raise another_payload(id)
        if there is not None:
            raise HttpProblem(
                409,
                "in_progress",
                "the first request of this key is not answered yet: wait for its answer, or ask for"
                " the status",
                retry_after=1,
                id=id,
            )
        self._held[id] = meant
        try:
            yield
        finally:
            del self._held[id]
