"""Who calls, and what he may: API keys, their roles and types."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from consumer.config.gateway_keys import LEAST_LENGTH, GatewayKey, GatewayRole, hash_of
from consumer.gateway.problems import HttpProblem, unknown
from consumer.gateway.rate_limit import RateLimit
from feedback.operations.request_reads import matches

LOCAL: Final = "local"
"""Who calls where there are no keys: a program of this machine."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls. Each check raises HttpProblem."""

    name: str
    roles: frozenset[str]
    types: tuple[str, ...]

    def need(self, role: GatewayRole) -> None:
        """Whether he may do such a thing at all."""
        if role not in self.roles:
            raise HttpProblem(
                403, "forbidden", f"this API key lacks the role {role}: ask for one that has it"
            )

    def need_type(self, type: str) -> None:
        """Whether he may send requests of this type."""
        if not self.may_see(type):
            raise HttpProblem(
                403, "forbidden", f"this API key is not for requests of type {type!r}"
            )

    def need_own(self, id: str, type: str) -> None:
        """A request of a type that is none of his is as unknown to him as one that is not there."""
        if not self.may_see(type):
            raise unknown(id)

    def may_see(self, type: str | None) -> bool:
        """Whether requests of this type are any of his business; None: it is not known."""
        return any(one == "*" or matches(type, one) for one in self.types)

    @property
    def sees_all(self) -> bool:
        """Whether requests of all types are."""
        return "*" in self.types


class Access:
    """Knows callers by their keys, and counts their calls."""

    def __init__(
        self,
        keys: Mapping[str, GatewayKey],
        rate: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`rate` is that of keys without one of their own; 0 no limit."""
        self._clock = clock
        self._known = [
            (key.hash.encode(), Caller(name, frozenset(key.roles), tuple(key.types)))
            for name, key in keys.items()
        ]
        self._rates = {name: RateLimit(key.rate or rate) for name, key in keys.items()}
        self._local = RateLimit(rate)

    @property
    def open(self) -> bool:
        """Whether there are no keys, so that programs of this machine alone may call."""
        return not self._known

    def caller(self, authorization: Sequence[str]) -> Caller:
        """Who calls with these headers Authorization. Raises HttpProblem, 401 or 429."""
        return self._counted(self._identified(authorization))

    def holder(self, token: str) -> Caller:
        """Who has this API key. Raises HttpProblem, 401 or 429."""
        if len(token) < LEAST_LENGTH:
            raise _unauthorized(
                f"this is no API key: one has {LEAST_LENGTH} characters at least", "invalid_token"
            )
        return self._counted(self._with_key(token))

    @property
    def anybody(self) -> Caller:
        """Who calls where there are no keys."""
        return Caller(LOCAL, frozenset({"send", "read", "operate"}), ("*",))

    def named(self, name: str) -> tuple[Caller, bytes] | None:
        """Who has the key of this name, and that key's hash; None where there is none any more."""
        return next(((caller, known) for known, caller in self._known if caller.name == name), None)

    def count(self, name: str) -> None:
        """Counts a call of somebody who logged in. Raises HttpProblem, 429."""
        found = self.named(name)
        if found is not None:
            self._counted(found[0])

    def _counted(self, caller: Caller) -> Caller:
        limit = self._local if self.open else self._rates[caller.name]
        wait = limit.take(self._clock())
        if wait:
            raise HttpProblem(
                429, "too_many_requests", "slow down, or ask for a higher rate", retry_after=wait
            )
        return caller

    def _identified(self, authorization: Sequence[str]) -> Caller:
        if self.open:
            return self.anybody
        if not authorization:
            raise _unauthorized("send Authorization: Bearer and an API key", "")
        scheme, _, token = authorization[0].partition(" ")
        token = token.strip()
        if len(authorization) > 1 or scheme.lower() != "bearer" or len(token) < LEAST_LENGTH:
            raise _unauthorized("the header Authorization holds no API key", "invalid_request")
        return self._with_key(token)

    def _with_key(self, token: str) -> Caller:
        given = hash_of(token).encode()
        # All of them, so that the time tells nothing.
        found = [caller for known, caller in self._known if hmac.compare_digest(known, given)]
        if not found:
            raise _unauthorized("this API key is not known here", "invalid_token")
        return found[0]


def _unauthorized(detail: str, error: str) -> HttpProblem:
    said = f', error="{error}"' if error else ""
    return HttpProblem(
        401, "unauthorized", detail, headers={"WWW-Authenticate": f'Bearer realm="oncepool"{said}'}
    )
