"""A status: what a producer reads about its request, and what its writer says.

A further field stands here three times: in both shapes, and in how one becomes the other.
"""

from __future__ import annotations

from binascii import hexlify
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, Generic, NamedTuple

import orjson
from typing_extensions import TypeVar

from feedback.contract.states import (
    FINAL,
    MAX_RUN,
    OK,
    RANK,
    SETTLED,
    WITHOUT_ROW,
    DeadLetterReason,
    State,
)
from feedback.status.unparsed import LARGE, ParsedWhenRead, fields_of

AROUND_RESULT: Final = 1
"""Levels of a status, and of a result record, that its result stands in."""
DEFAULT_TTL: Final = 3600
"""Seconds that a status lives, where its type says nothing else."""
_MOST_ATTEMPTS: Final = 2**31 - 1
"""That the journal has room for."""

ResultT = TypeVar("ResultT", default=Any)


@dataclass(frozen=True, slots=True)
class Status(Generic[ResultT]):
    """One status as it stood when it was read. Times are UTC."""

    id: str
    """Of the request."""
    type: str
    """Of the request, as `payment.create`."""
    state: State
    code: str
    """Why it is in this state, in snake_case: `ok`, `timeout`, `expired`, a handler's own."""
    attempt: int
    """Which of the handler's attempts it is about, from 1; 0 where none was made."""
    run: int
    """Its number among all starts, also those that do not count as an attempt."""
    at: datetime
    """When it was written."""
    fingerprint: str | None = None
    """Of the request's payload, in hex; None where the type makes its own."""
    result: ResultT = None  # type: ignore[assignment]
    """What the handler returned, as JSON; from a client that knows the handler, as its annotation
    says."""
    error: str | None = None
    """What went wrong, for people."""
    reason: str | None = None
    """Why it waits, or what an operator said."""
    retry_at: datetime | None = None
    """When it is due, where it is `waiting`."""
    superseded_by: str | None = None
    """Id of the newer request that took its place."""
    journaled: bool = True
    """False for a failure, or a doubt, of which no row of the journal says: its run number is not
    the journal's, and the next one may be lower."""

    @property
    def v(self) -> str:
        """Five digits of the run number, one of the rank: orders statuses of one id."""
        return f"{self.run:05d}{RANK[self.state]}"

    @property
    def settled(self) -> bool:
        """Whether a producer that waits has its answer."""
        return self.state in SETTLED

    @property
    def final(self) -> bool:
        """Whether nothing but an operator moves it any more."""
        return self.state in FINAL

    @property
    def has_row(self) -> bool:
        """Of a failure, whether a row of the journal says it; older versions tell by its code."""
        return self.journaled and self.code not in WITHOUT_ROW

    @property
    def of_no_request(self) -> bool:
        """Whether it is said of a message that could not be read: its id may be another's.

        It says nothing of what can be read, as all is that clients, relays and gateways send.
        """
        return self.state is State.FAILED and self.code == DeadLetterReason.MALFORMED

    def of_another_type(self, type: str) -> bool:
        """Whether a request of this type that was sent under its id is another one.

        `type` is empty where its sender is not known here.
        """
        return "" not in (self.type, type) and self.type != type and not self.of_no_request

    def of_another_payload(self, fingerprint: str | None) -> bool:
        """Whether a payload with this fingerprint, in hex, that was sent under its id is another.

        Without one on either side they cannot be compared.
        """
        return None not in (self.fingerprint, fingerprint) and self.fingerprint != fingerprint

    @property
    def result_json(self) -> bytes | None:
        """The result as JSON, None where there is none."""
        return _RESULT.as_json(self)

    @classmethod
    def decode(cls, value: bytes, *, whole: bool = True) -> Status:
        """Reads what StatusFields.encode wrote. Raises ValueError for anything else.

        Not `whole`: a large result is parsed where `result` is first read, which may raise it then.
        """
        try:
            fields = fields_of(value, whole=whole)
            v = fields["v"]
            if len(v) != 6 or not (v.isascii() and v.isdecimal()):
                raise ValueError(f"v is {v!r}")
            return cls(
                id=_text(fields, "id"),
                type=_text(fields, "type"),
                state=State(fields["state"]),
                code=_text(fields, "code"),
                attempt=_number(fields["attempt"]),
                run=int(v[:5]),
                at=_time(fields["at"]),
                fingerprint=_hex(_text_or_none(fields, "fingerprint")),
                result=fields.get("result"),
                error=_text_or_none(fields, "error"),
                reason=_text_or_none(fields, "reason"),
                retry_at=None if fields.get("retry_at") is None else _time(fields["retry_at"]),
                superseded_by=_text_or_none(fields, "superseded_by"),
                journaled=fields.get("journaled") is not False,
            )
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"not a status: {error!r}") from None


_RESULT: Final = ParsedWhenRead(vars(Status)["result"], around=AROUND_RESULT)
type.__setattr__(Status, "result", _RESULT)  # in place of its slot


def has_large_result(status: Status) -> bool:
    """Whether its result is large, as far as that is known without writing it."""
    return _RESULT.is_kept(status) or (type(status.result) is str and len(status.result) >= LARGE)


def _text(fields: dict[str, Any], name: str) -> str:
    found = fields[name]
    if not isinstance(found, str):
        raise TypeError(f"{name} is {found!r}")
    return found


def _text_or_none(fields: dict[str, Any], name: str) -> str | None:
    return None if fields.get(name) is None else _text(fields, name)


def _hex(found: str | None) -> str | None:
    if found is None:
        return None
    if bytes.fromhex(found).hex() != found.lower():
        raise ValueError(f"fingerprint is {found!r}")
    return found.lower()


def _number(found: Any) -> int:
    if type(found) is not int or not 0 <= found <= _MOST_ATTEMPTS:
        raise TypeError(f"attempt is {found!r}")
    return found


def _time(found: str) -> datetime:
    at = datetime.fromisoformat(found)
    if at.tzinfo is None:
        raise ValueError(f"a time is {found}, without a zone")
    return at.astimezone(UTC)


class StatusFields(NamedTuple):
    """What a status says, as its writer has it. Times are aware."""

    id: str
    type: str
    state: State
    run: int
    code: str
    attempt: int
    at: datetime
    """Since when it stands so."""
    fingerprint: bytes | None = None
    result: bytes | str | None = None
    """JSON."""
    error: str | None = None
    reason: str | None = None
    retry_at: datetime | None = None
    superseded_by: str | None = None
    journaled: bool = True

    def encode(self) -> bytes:
        """The status as JSON, `v` first."""
        # Unpacked, and the state as text: an enum takes orjson twice as long, and hashes slowly.
        (name, kind, state, run, code, attempt, at, fingerprint, result, error, reason, retry_at,
         superseded_by, journaled) = self  # fmt: skip
        text = str(state)
        fields: dict[str, Any] = {
            "v": _order(run, text),
            "id": name,
            "type": kind,
            "state": text,
            "code": code,
            "attempt": attempt,
            "at": at if at.tzinfo is UTC else at.astimezone(UTC),
        }
        if fingerprint is not None:
            fields["fingerprint"] = fingerprint.hex()
        if result is not None:
            fields["result"] = orjson.Fragment(result)
        if error is not None:
            fields["error"] = error
        if reason is not None:
            fields["reason"] = reason
        if retry_at is not None:
            fields["retry_at"] = retry_at.astimezone(UTC)
        if superseded_by is not None:
            fields["superseded_by"] = superseded_by
        if not journaled:
            fields["journaled"] = False
        try:
            return orjson.dumps(fields, option=orjson.OPT_UTC_Z)
        except TypeError:
            # An exception's text may hold half a surrogate pair. A status must not fail on it.
            return orjson.dumps(_writable(fields), option=orjson.OPT_UTC_Z)


class StatusWrite(NamedTuple):
    """One status on its way to the store."""

    id: str
    value: bytes  # what StatusFields.encode made
    ttl: int  # seconds, at least 1
    # The writer has no journal row to take the run number from (database away, shutdown): the
    # store takes the standing status's plus one.
    bump: bool = False
    reply_to: str | None = None  # channel of the producer that wants a hint
    # A row of the journal says for good what this says: it is set without a look at what stands.
    final: bool = False

    @classmethod
    def of(
        cls,
        status: StatusFields,
        *,
        ttl: int | None = None,
        bump: bool = False,
        reply_to: str | None = None,
        final: bool = False,
        now: datetime | None = None,
    ) -> StatusWrite:
        """Of what a status says; `ttl` is its type's, in seconds, None = the default.

        One that waits lives until its `retry_at` and for `ttl` seconds after that; `now` is by the
        clock of `retry_at`, where `at` is not. It is `final` where a row says it for good; what is
        to `bump` has no row, and says so.
        """
        if bump:
            status = status._replace(journaled=False)
        seconds = DEFAULT_TTL if ttl is None else ttl
        if status.retry_at is not None:
            seconds += max(0, int((status.retry_at - (now or status.at)).total_seconds()))
        return cls(status.id, status.encode(), seconds, bump, reply_to, final)

    @classmethod
    def of_done(
        cls,
        id: str,
        type: str,
        *,
        at: int,
        fingerprint: bytes | None,
        result: bytes | None,
        ttl: int,
        reply_to: str | None,
        final: bool,
    ) -> StatusWrite:
        """Of a request that is done at its first run; `at` in microseconds, `final` as in `of`.

        Nearly all are such ones, and what `StatusFields` encodes of them differs in five places.
        """
        seconds, part = divmod(at, 1_000_000)
        value = b"%b%b%b%b%b%b%b}" % (
            _DONE,
            orjson.dumps(id),
            _same_of_done(type),
            _second(seconds),
            b'.%06dZ"' % part if part else b'Z"',
            b"" if fingerprint is None else b',"fingerprint":"%b"' % hexlify(fingerprint),
            b"" if result is None else b',"result":%b' % result,
        )
        return cls(id, value, ttl, False, reply_to, final)  # by name it takes 0.25 µs longer


def _writable(fields: dict[str, Any]) -> dict[str, Any]:
    texts = {name: fields[name] for name in ("error", "reason") if name in fields}
    return fields | {name: text.encode(errors="replace").decode() for name, text in texts.items()}


@lru_cache(maxsize=1024)
def _same_of_done(type: str) -> bytes:
    """What stands between id and time in the statuses of a type's requests that are done."""
    whole = StatusFields("", type, State.DONE, 1, code=OK, attempt=1, at=datetime.now(UTC)).encode()
    return whole[whole.index(b',"type":') : whole.index(b'"at":"') + len(b'"at":"')]


@lru_cache(maxsize=64)
def _second(seconds: int) -> bytes:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S").encode()


@lru_cache(maxsize=256)
def _order(run: int, state: str) -> str:
    return f"{min(run, MAX_RUN):05d}{RANK[State(state)]}"


_DONE: Final = b'{"v":"%b","id":' % _order(1, State.DONE).encode()
